"""From bubblewrap's words to a cause and a mend."""

from __future__ import annotations

import pytest

from sandbox_kernel.engines.diagnosis import Facts, diagnose

NO_NAMESPACE = (
    "bwrap: No permissions to create new namespace, likely because the kernel does not allow"
    " non-privileged user namespaces. See <https://deb.li/bubblewrap> or <file:///usr/share/doc/"
    "bubblewrap/README.Debian.gz>.\n"
)
NO_NAMESPACE_UPSTREAM = (
    "bwrap: No permissions to creating new namespace, likely because the kernel does not allow"
    " non-privileged user namespaces. On e.g. debian this can be enabled with"
    " 'sysctl kernel.unprivileged_userns_clone=1'.\n"
)


@pytest.mark.parametrize(
    ("said", "facts", "code"),
    [
        (NO_NAMESPACE, Facts(max_user_namespaces=0), "userns-none"),
        (
            (
                "bwrap: Creating new namespace failed, likely because the kernel does not support user"
                " namespaces.  bwrap must be installed setuid on such systems.\n"
            ),
            Facts(max_user_namespaces=0),
            "userns-none",
        ),
        (
            NO_NAMESPACE_UPSTREAM,
            Facts(max_user_namespaces=9000, unprivileged_userns_clone=0),
            "userns-root-only",
        ),
        (
            "bwrap: setting up uid map: Permission denied\n",
            Facts(max_user_namespaces=9000, apparmor_restrict=1),
            "apparmor",
        ),
        (
            "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted\n",
            Facts(max_user_namespaces=9000, apparmor_restrict=1),
            "apparmor",
        ),
        (
            NO_NAMESPACE_UPSTREAM,
            Facts(max_user_namespaces=9000, in_container=True, seccomp_mode=2),
            "container-seccomp",
        ),
        (NO_NAMESPACE_UPSTREAM, Facts(seccomp_mode=2, is_root=True), "container-seccomp"),
        (NO_NAMESPACE_UPSTREAM, Facts(max_user_namespaces=9000), "userns-denied"),
        (
            "bwrap: Creating new namespace failed: No space left on device\n",
            Facts(max_user_namespaces=3),
            "userns-exhausted",
        ),
        (
            "bwrap: Can't mount proc on /newroot/proc: Operation not permitted\n",
            Facts(in_container=True),
            "proc-masked",
        ),
        (
            "bwrap: pivot_root: Operation not permitted\n",
            Facts(in_container=True),
            "mounts-denied",
        ),
        ("bwrap: Failed to make / slave: Permission denied\n", Facts(), "mounts-denied"),
        (
            (
                "bwrap: Can't make overlay mount on /newroot/nb with options upperdir=/oldroot/a:"
                " Invalid argument\n"
            ),
            Facts(),
            "overlay-denied",
        ),
        ("bwrap: Unknown option --overlay-src\n", Facts(), "bwrap-too-old"),
        (
            (
                "bwrap: error while loading shared libraries: libcap.so.2: cannot open shared object"
                " file: No such file or directory\n"
            ),
            Facts(),
            "bwrap-broken",
        ),
        ("bwrap: Unknown option --disable-userns\n", Facts(), "bwrap-too-old"),
        ("bwrap: prctl(PR_SET_SECCOMP) seccomp: Invalid argument\n", Facts(), "seccomp-denied"),
    ],
)
def test_each_message_has_a_cause_and_a_mend(said: str, facts: Facts, code: str) -> None:
    """The same words are told apart by what the machine says of itself."""
    diagnosis = diagnose(said, facts)

    assert diagnosis is not None
    assert diagnosis.code == code
    assert diagnosis.cause
    assert diagnosis.mend.endswith((".", "'read'."))


def test_apparmor_is_no_cause_for_root() -> None:
    """The rule is for unprivileged users only."""
    diagnosis = diagnose(NO_NAMESPACE_UPSTREAM, Facts(apparmor_restrict=1, is_root=True))

    assert diagnosis is not None
    assert diagnosis.code == "userns-denied"


@pytest.mark.parametrize(
    "said",
    ["", "bwrap: Can't find source path /gone: No such file or directory\n", "Traceback ...\n"],
)
def test_other_failures_are_not_the_machines(said: str) -> None:
    """A missing folder or a broken runtime is no lack of a permission."""
    assert diagnose(said, Facts(in_container=True, apparmor_restrict=1)) is None
