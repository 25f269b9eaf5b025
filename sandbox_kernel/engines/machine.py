"""What the machine says of itself, read from /proc; see `diagnosis` for what it means."""

from __future__ import annotations

import os

from sandbox_kernel.engines.diagnosis import Facts

__all__ = ["filesystem_type", "has_mounts_below", "machine_facts", "mounts_below", "type_of_mount"]


def machine_facts() -> Facts:
    """Read the facts that tell the causes of a failure apart."""
    return Facts(
        max_user_namespaces=_number("/proc/sys/user/max_user_namespaces"),
        unprivileged_userns_clone=_number("/proc/sys/kernel/unprivileged_userns_clone"),
        apparmor_restrict=_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        in_container=os.path.exists("/.dockerenv")
        or os.path.exists("/run/.containerenv")
        or "KUBERNETES_SERVICE_HOST" in os.environ,
        seccomp_mode=_seccomp_mode(),
        is_root=os.geteuid() == 0,
    )


def filesystem_type(path: str) -> str:
    """Return the type of the file system a path lies on, or will lie on when it is made."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return type_of_mount(os.path.realpath(path), file.read())
    except OSError:
        return ""


def type_of_mount(path: str, mountinfo: str) -> str:
    """Return the type of the mount that holds an absolute path; the later one wins a tie."""
    best, result = -1, ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = _mount_point(before)
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= best:
            best, result = len(point), after.partition(" ")[0]
    return result


def has_mounts_below(path: str) -> bool:
    """Whether something is mounted in a folder, or nobody can say."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return mounts_below(path, file.read())
    except OSError:
        return True


def mounts_below(path: str, mountinfo: str) -> bool:
    """Whether one of the mounts lies below an absolute path."""
    return any(
        _mount_point(line).startswith(path.rstrip("/") + "/") for line in mountinfo.splitlines()
    )


def _mount_point(line: str) -> str:
    """Return where a line's mount is; spaces and the like are written in octal (proc(5))."""
    point = line.split()[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
    return point.encode("latin-1").decode("utf-8", "surrogateescape")


def _number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _seccomp_mode() -> int:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("Seccomp:"):
                    return int(line.split()[1])
    except (OSError, ValueError):
        return 0
    return 0
