"""The system call filter of a sandbox, as a classic BPF program made here by hand.

A deny list, since the programs inside are not known beforehand.  What it denies are calls which an
unprivileged program hardly needs and which have opened kernels before: mounts and namespaces, other
processes' memory and limits, keys, loadable code, and the two terminal ioctls that type into
another session.
Sources: seccomp(2), the kernel's ``seccomp_filter.rst``, and the system call tables of both
architectures.

The filter is a pure function of its options; nothing here needs libseccomp.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass

from sandbox_kernel.errors import SandboxConfigurationError

__all__ = ["ARCHITECTURES", "Architecture", "seccomp_filter"]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What differs between machines.

    Parameters
    ----------
    audit : int
        The ``AUDIT_ARCH_`` value the kernel reports for native calls.
    column : int
        Column of the tables below.
    x32_bit : int
        Bit of call numbers of the second, 32-bit pointer ABI; 0 where there is none.
    """

    audit: int
    column: int
    x32_bit: int


ARCHITECTURES = {
    "x86_64": Architecture(audit=0xC000003E, column=0, x32_bit=0x40000000),
    "aarch64": Architecture(audit=0xC00000B7, column=1, x32_bit=0),
}

# name: (x86_64, aarch64); None where the architecture does not have the call.
_TRACING = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
}
_DENIED: dict[str, tuple[int | None, int | None]] = {
    # mounts and roots
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18),
    "sysfs": (139, None),
    "ustat": (136, None),
    # namespaces; clone and unshare are looked at more closely below
    "setns": (308, 268),
    # the kernel itself
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "create_module": (174, None),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "get_kernel_syms": (177, None),
    "query_module": (178, None),
    "syslog": (103, 116),
    "acct": (163, 89),
    "reboot": (169, 142),
    "_sysctl": (156, None),
    "uselib": (134, None),
    # keys: the kernel's keyrings are not namespaced
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # clocks, names, terminals and ports of the machine
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
}
# ENOSYS, not EPERM: programs then take the older way round instead of giving up.  For clone3 there
# is no other choice, because a filter cannot look into the structure it is given.
_ABSENT = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_CLONE = (56, 220)
_UNSHARE = (272, 97)
_IOCTL = (16, 29)
_PRLIMIT = (302, 261)
_SOCKET = (41, 198)
_SOCKETPAIR = (53, 199)
# name: (x86_64, aarch64), and which argument is the mode
_CHMOD: dict[str, tuple[tuple[int | None, int | None], int]] = {
    "chmod": ((90, None), 1),
    "fchmod": ((91, 52), 1),
    "fchmodat": ((268, 53), 2),
    "fchmodat2": ((452, 452), 2),
}

# All CLONE_NEW flags of sched.h but the one for time: mounts, control groups, names, IPC, users,
# processes, network.
_NAMESPACE_FLAGS = 0x7E020000
_NEWTIME = 0x00000080  # means something only to unshare; in clone these bits are the exit signal
# S_ISUID | S_ISGID.  In a folder of the host, a program of root's sandbox that is made setuid is
# setuid root for every user of the host.  A file made with the bits at once loses them when it is
# written to (write(2)).
_SETUID_BITS = 0o6000
_TIOCSTI = 0x5412
_TIOCLINUX = 0x541C
# AF_UNSPEC, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK.  Others are rare and much of their code is
# little tested; AF_VSOCK would reach the hypervisor whatever the network namespace says.
_FAMILIES = (0, 1, 2, 10, 16)

# bpf_common.h and seccomp.h
_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_ALLOW = 0x7FFF0000
_ALL_BITS = 0xFFFFFFFF
_FAIL_WITH = 0x00050000
# struct seccomp_data: int nr; u32 arch; u64 instruction_pointer; u64 args[6].  Both architectures
# are little-endian, so the low half of an argument is its first word.
_NUMBER = 0
_ARCH = 4
_ARGUMENT = (16, 24, 32)
_UPPER_HALF = 4

_NEXT = ""


@dataclass(frozen=True)
class _Step:
    """One instruction whose jumps still have names; the empty name is the next instruction."""

    code: int
    value: int
    then: str = _NEXT
    otherwise: str = _NEXT
    label: str = ""


def seccomp_filter(machine: str, *, allow_ptrace: bool = False) -> bytes:
    """Return the filter for bubblewrap's ``--seccomp``.

    Parameters
    ----------
    machine : str
        As ``os.uname().machine`` says.
    allow_ptrace : bool
        Leave out the calls that debuggers and tracers need.

    Returns
    -------
    bytes
        An array of ``struct sock_filter`` in the machine's byte order.

    Raises
    ------
    SandboxConfigurationError
        There is no table for this machine.

    Notes
    -----
    Calls by another ABI (32-bit programs, x32) fail with ENOSYS altogether: their numbers differ,
    so that a list made for native calls would say nothing about them.
    """
    try:
        architecture = ARCHITECTURES[machine]
    except KeyError:
        raise SandboxConfigurationError(
            f"There is no system call filter for {machine!r} machines.",
            hint=f"The bubblewrap engine runs on {' and '.join(ARCHITECTURES)}.",
            context={"machine": machine},
        ) from None
    return _assemble(_steps(architecture, allow_ptrace=allow_ptrace))


def _steps(architecture: Architecture, *, allow_ptrace: bool) -> list[_Step]:
    column = architecture.column
    steps = [
        _Step(_LOAD, _ARCH),
        _Step(_EQUAL, architecture.audit, _NEXT, "absent"),
        _Step(_LOAD, _NUMBER),
    ]
    if architecture.x32_bit:
        steps.append(_Step(_ANY_BIT, architecture.x32_bit, "absent"))
    steps += [
        _Step(_EQUAL, _CLONE[column], "clone"),
        _Step(_EQUAL, _UNSHARE[column], "unshare"),
        _Step(_EQUAL, _IOCTL[column], "ioctl"),
        _Step(_EQUAL, _PRLIMIT[column], "prlimit"),
        _Step(_EQUAL, _SOCKET[column], "socket"),
        _Step(_EQUAL, _SOCKETPAIR[column], "socket"),
    ]
    for numbers_of_one, argument in _CHMOD.values():
        number = numbers_of_one[column]
        if number is not None:
            steps.append(_Step(_EQUAL, number, f"mode in argument {argument}"))
    denied = _DENIED if allow_ptrace else _DENIED | _TRACING
    for table, target in ((denied, "denied"), (_ABSENT, "absent")):
        numbers = (row[column] for row in table.values())
        steps += [_Step(_EQUAL, number, target) for number in numbers if number is not None]
    steps += [
        _Step(_RETURN, _ALLOW, label="allowed"),
        _Step(_LOAD, _ARGUMENT[0], label="clone"),
        _Step(_ANY_BIT, _NAMESPACE_FLAGS, "denied", "allowed_far"),
        _Step(_LOAD, _ARGUMENT[0], label="unshare"),
        _Step(_ANY_BIT, _NAMESPACE_FLAGS | _NEWTIME, "denied", "allowed_far"),
        _Step(_LOAD, _ARGUMENT[1], label="ioctl"),
        _Step(_EQUAL, _TIOCSTI, "denied"),
        _Step(_EQUAL, _TIOCLINUX, "denied", "allowed_far"),
        # A program sets its own limits (as process 0, which is how libraries do it) and reads
        # those of any; the runtime's would be what the next kernel is started under.
        _Step(_LOAD, _ARGUMENT[0], label="prlimit"),
        _Step(_EQUAL, 0, "allowed_far"),
        _Step(_LOAD, _ARGUMENT[2]),
        _Step(_ANY_BIT, _ALL_BITS, "denied"),
        _Step(_LOAD, _ARGUMENT[2] + _UPPER_HALF),
        _Step(_ANY_BIT, _ALL_BITS, "denied", "allowed_far"),
        _Step(_LOAD, _ARGUMENT[1], label="mode in argument 1"),
        _Step(_ANY_BIT, _SETUID_BITS, "denied", "allowed_far"),
        _Step(_LOAD, _ARGUMENT[2], label="mode in argument 2"),
        _Step(_ANY_BIT, _SETUID_BITS, "denied", "allowed_far"),
        _Step(_LOAD, _ARGUMENT[0], label="socket"),
        *(_Step(_EQUAL, family, "allowed_far") for family in _FAMILIES),
        _Step(_RETURN, _FAIL_WITH | errno.EAFNOSUPPORT),
        # Jumps lead forward only, hence a second way out down here.
        _Step(_RETURN, _ALLOW, label="allowed_far"),
        _Step(_RETURN, _FAIL_WITH | errno.EPERM, label="denied"),
        _Step(_RETURN, _FAIL_WITH | errno.ENOSYS, label="absent"),
    ]
    return steps


def _assemble(steps: list[_Step]) -> bytes:
    places = {step.label: place for place, step in enumerate(steps) if step.label}

    def distance(place: int, label: str) -> int:
        return places[label] - place - 1 if label else 0

    # A jump field has eight bits; struct.pack refuses what does not fit.
    return b"".join(
        struct.pack(
            "=HBBI",
            step.code,
            distance(place, step.then),
            distance(place, step.otherwise),
            step.value,
        )
        for place, step in enumerate(steps)
    )
