"""Which folders of the host may be shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_kernel.engines.folders import HostFolders, host_folders, lies_in, refusal

HOST = HostFolders(
    homes=("/home/ada",),
    private=("/home/ada/.local/share/jupyter", "/home/ada/.ssh", "/data/jupyter/sandbox"),
)


@pytest.mark.parametrize(
    "folder",
    [
        *("/home/ada/notebooks", "/home/ada/.hidden/work", "/home/ada/Documents/ssh", "/home/adam"),
        *("/srv/courses/2024", "/mnt/data", "/media/ada/stick", "/run/media/ada/stick"),
        *("/tmp/work", "/usr/local/share/notebooks", "/workspace", "/data/jupyter-notebooks"),
        *("/opt/project", "/var/lib/project", "/home/ada/.local/share/jupyter-notebooks"),
    ],
)
def test_folders_of_work_are_shown(folder: str) -> None:
    """Whatever lies beside private things and is none of them."""
    assert refusal(folder, HOST) == ""


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("/home/ada", "it is your home folder"),
        ("/home", "contains your home folder"),
        ("/", "contains your home folder"),
        ("/home/ada/.local", "contains /home/ada/.local/share/jupyter"),
        ("/home/ada/.local/share/jupyter", "it lies in"),
        ("/home/ada/.local/share/jupyter/runtime", "it lies in"),
        ("/home/ada/.ssh", "it lies in"),
        ("/data/jupyter/sandbox/sandboxes/x/workspace", "it lies in /data/jupyter/sandbox"),
        ("/data/jupyter", "it contains /data/jupyter/sandbox"),
        ("/data", "it contains /data/jupyter/sandbox"),
        ("/etc", "system folder"),
        ("/etc/ssl", "system folder"),
        ("/proc/self", "system folder"),
        ("/run/user/1000", "system folder"),
        ("/sys/fs", "system folder"),
        ("/dev/shm", "system folder"),
        ("/usr", "whole system"),
        ("/usr/lib/python3", "installed programs"),
        ("/tmp", "whole system"),
        ("/var", "whole system"),
        ("/mnt", "whole system"),
    ],
)
def test_private_and_system_folders_are_refused(folder: str, why: str) -> None:
    """With the reason, which names what is private."""
    assert why in refusal(folder, HOST)


def test_links_are_resolved_before_deciding(tmp_path: Path) -> None:
    """A home behind a link is still the home; so is what the environment names."""
    home = tmp_path / "real"
    home.mkdir()
    (tmp_path / "link").symlink_to(home)

    host = host_folders((str(tmp_path / "link" / "state"),), {"HOME": str(tmp_path / "link")})

    assert refusal(str(home), host) == "it is your home folder"
    assert "it lies in" in refusal(str(home / "state"), host)
    assert refusal(str(home / "work"), host) == ""


def test_jupyters_own_folders_are_private(tmp_path: Path) -> None:
    """Connection files, tokens and configuration, wherever the environment puts them."""
    environ = {
        "HOME": str(tmp_path / "home"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "share"),
    }

    host = host_folders((), environ)

    for name in ("runtime", "config", "share/jupyter/runtime", "home/.jupyter"):
        assert "it lies in" in refusal(str(tmp_path / name), host), name


def test_a_home_of_slash_refuses_nothing_else() -> None:
    """System users have it; it must not make every folder a part of the home."""
    assert "/" not in host_folders((), {"HOME": "/"}).homes


def test_lying_in_is_by_whole_names() -> None:
    """A folder is not inside another one because its name begins the same."""
    assert lies_in("/a/b", "/a")
    assert lies_in("/a", "/a")
    assert lies_in("/a", "/")
    assert not lies_in("/ab", "/a")
