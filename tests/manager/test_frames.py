"""Documents of frames: kept by what they hold, within bounds."""

from __future__ import annotations

import os
import stat

import pytest

from sandbox_kernel.errors import SandboxConfigurationError
from sandbox_kernel.manager.frames import FrameStore, KeptFrames


@pytest.fixture
def store(tmp_path):
    return FrameStore(tmp_path / "frames", owner_bytes=1000, total_bytes=2500)


def age(tmp_path, digest, seconds):
    (path,) = tmp_path.glob(f"frames/*/{digest}")
    os.utime(path, (seconds, seconds))


def test_a_document_is_found_by_its_digest(store, tmp_path):
    """Also by another process, and only by this user."""
    digest = store.keep("s", "<p>é</p>")

    assert FrameStore(tmp_path / "frames").read(digest) == "<p>é</p>".encode()
    assert store.keep("s", "<p>é</p>") == digest
    (path,) = tmp_path.glob(f"frames/s/{digest}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_sandbox_drives_out_its_own_only(store, tmp_path):
    """The one unused longest goes first; reading is a use."""
    other = store.keep("other", "o" * 900)
    first, second = store.keep("s", "1" * 400), store.keep("s", "2" * 400)
    age(tmp_path, other, 1)
    age(tmp_path, first, 2)
    age(tmp_path, second, 3)

    assert store.read(first)
    third = store.keep("s", "3" * 400)

    assert store.read(second) is None
    assert all(store.read(digest) for digest in (other, first, third))


def test_all_of_them_have_a_bound(store, tmp_path):
    """Three sandboxes with almost all that each may have are too much together."""
    digests = [store.keep(f"s{number}", str(number) * 900) for number in range(3)]

    assert [digest for digest in digests if store.read(digest)] == digests[1:]


def test_what_cannot_be_kept_is_said(store):
    """A document beyond the bound is not written and no other removed for it."""
    digest = store.keep("s", "x")

    assert store.keep("s", "x" * 1001) is None
    assert store.read(digest)


@pytest.mark.parametrize("digest", ["", "..", "*", "a" * 63, "A" * 64, "../../etc/passwd"])
def test_only_digests_are_looked_for(store, digest):
    """A request can name no other file."""
    store.keep("s", "x")

    assert store.read(digest) is None


@pytest.mark.parametrize("owner", ["", "..", "a/b", "é", "x" * 101])
def test_odd_owners_share_a_place(store, tmp_path, owner):
    """Names come from the registry, which checks them; this does not rely on it."""
    digest = store.keep(owner, "x")

    assert [path.parent.name for path in tmp_path.rglob(digest)] == ["other"]
    assert store.read(digest)


def test_a_full_disk_keeps_no_output_back(store, tmp_path):
    """The output then holds its document itself."""
    (tmp_path / "frames").write_text("in the way")

    assert KeptFrames(store, "s", "/sandbox/frame/").keep("x") is None


@pytest.mark.parametrize(
    "url", ["", "sandbox/frame/", "//host/sandbox/frame/", "https://host/sandbox/frame/", "/files/"]
)
def test_addresses_are_those_of_the_server(store, url):
    """A wrong setting is an error before the kernel starts."""
    with pytest.raises(SandboxConfigurationError, match="frame_url"):
        KeptFrames(store, "s", url)
