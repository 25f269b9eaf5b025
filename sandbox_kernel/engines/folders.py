"""Which folders of the host may be shown to a sandbox; decisions only, on resolved paths."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["HostFolders", "host_folders", "lies_in", "refusal", "touches_private"]

# Nothing in these is anybody's notebook folder: devices, kernel interfaces, secrets of the system,
# and sockets of its services.  Removable disks are the exception below /run.
_SYSTEM = ("/proc", "/sys", "/dev", "/boot", "/etc", "/run", "/var/run", "/lost+found")
_SYSTEM_BUT = ("/run/media",)
# Their subfolders are fine, but not they themselves: they hold everybody's things or programs.
_SHARED = (
    *("/", "/usr", "/usr/local", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/srv", "/mnt"),
    *("/media", "/run/media", "/home", "/var", "/var/lib", "/var/log", "/var/spool", "/var/tmp"),  # noqa: S108 - named to be refused
    "/tmp",  # noqa: S108 - named to be refused
)
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_PROGRAMS_BUT = ("/usr/local", "/usr/src", "/usr/home")
# Below the home: keys and log-ins, and what other programs of the user will run or obey.
_SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".jupyter", ".ipython"),
    *(".password-store", ".pki", ".mozilla", ".thunderbird", ".local/bin", ".local/share/keyrings"),
)


@dataclass(frozen=True, kw_only=True)
class HostFolders:
    """What the policy knows of the host; every path absolute and with symbolic links resolved.

    Parameters
    ----------
    homes : tuple of str
        The user's home folder, by the environment and by the user database.
    private : tuple of str
        Folders that hold secrets or state: they, what lies in them and what contains them are not
        shown.
    """

    homes: tuple[str, ...]
    private: tuple[str, ...]


def host_folders(
    state: tuple[str, ...], environ: Mapping[str, str] = os.environ, *, uid: int | None = None
) -> HostFolders:
    """Look the folders up; the only function here that looks at the machine.

    Parameters
    ----------
    state : tuple of str
        Folders of our own state.
    """
    found = [environ.get("HOME", "")]
    with contextlib.suppress(KeyError):  # a user without an entry, as in some containers
        found.append(pwd.getpwuid(os.getuid() if uid is None else uid).pw_dir)
    # A home of "/" (system users) would make every folder "inside the home" of nobody.
    homes = tuple(dict.fromkeys(os.path.realpath(each) for each in found if each not in ("", "/")))
    named = [
        environ[name]
        for name in (
            *("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "GNUPGHOME"),
            *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG"),
        )
        if environ.get(name)
    ]
    data = environ.get("XDG_DATA_HOME")
    below = [os.path.join(home, name) for home in homes for name in _SECRETS]
    below += [os.path.join(home, ".local/share/jupyter") for home in homes]
    if data:
        named.append(os.path.join(data, "jupyter"))
    private = dict.fromkeys(map(os.path.realpath, (*state, *named)))
    # The homes are resolved: what lies directly in one is too, if it is no link itself.
    private |= dict.fromkeys(
        os.path.realpath(each)
        if os.path.islink(each) or os.path.dirname(each) not in homes
        else each
        for each in below
    )
    return HostFolders(homes=homes, private=tuple(private))


def lies_in(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies below it; both absolute."""
    return path == folder or path.startswith(folder + "/") or folder == "/"


def touches_private(path: str, host: HostFolders) -> bool:
    """Whether showing `path` would show a home folder as a whole, or something private."""
    return any(lies_in(home, path) for home in host.homes) or any(
        lies_in(path, each) or lies_in(each, path) for each in host.private
    )


def refusal(folder: str, host: HostFolders) -> str:
    """Return why this folder may not be shown, or an empty string when it may.

    Parameters
    ----------
    folder : str
        Absolute, with symbolic links resolved: a link to the home folder is the home folder.
    """
    for home in host.homes:
        if folder == home:
            return "it is your home folder"
        if lies_in(home, folder):
            return "it contains your home folder"
    for each in host.private:
        if lies_in(folder, each):
            return f"it lies in {each}, which holds private settings or state"
        if lies_in(each, folder):
            return f"it contains {each}, which holds private settings or state"
    if folder in _SHARED:
        return "it is a folder of the whole system"
    if _lies_in_any(folder, _SYSTEM) and not _lies_in_any(folder, _SYSTEM_BUT):
        return "it is a system folder"
    if _lies_in_any(folder, _PROGRAMS) and not _lies_in_any(folder, _PROGRAMS_BUT):
        return "it is a folder of installed programs"
    return ""


def _lies_in_any(path: str, folders: tuple[str, ...]) -> bool:
    return any(lies_in(path, folder) for folder in folders)
