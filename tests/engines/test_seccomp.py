"""The system call filter, run instruction by instruction."""

from __future__ import annotations

import errno
import struct

import pytest

from sandbox_kernel.engines.seccomp import ARCHITECTURES, seccomp_filter
from sandbox_kernel.errors import SandboxConfigurationError

ALLOW = 0x7FFF0000
FAIL = 0x00050000
EPERM, ENOSYS = FAIL | errno.EPERM, FAIL | errno.ENOSYS
X86_64, AARCH64, I386, ARM = 0xC000003E, 0xC00000B7, 0x40000003, 0x40000028


def verdict(program: bytes, number: int, *args: int, arch: int = X86_64) -> int:
    """Run a filter as the kernel does, over one `struct seccomp_data`."""
    data = struct.pack("<iIQ6Q", number, arch, 0, *(each % 2**64 for each in (*args, *[0] * 6)[:6]))
    steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator = place = 0
    while True:
        code, then, otherwise, value = steps[place]
        place += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x15:
                place += then if accumulator == value else otherwise
            case 0x45:
                place += then if accumulator & value else otherwise
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"instruction {code:#x}")


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def numbers(machine: str, **names: tuple[int, int]) -> dict[str, int]:
    return {name: both[machine == "aarch64"] for name, both in names.items()}


def arch_of(machine: str) -> int:
    return ARCHITECTURES[machine].audit


def test_ordinary_calls_are_allowed(machine: str) -> None:
    """read, openat, execve, mmap, futex and their like pass, and so does a call nobody knows."""
    program = seccomp_filter(machine)
    ordinary = numbers(
        machine,
        read=(0, 63),
        openat=(257, 56),
        execve=(59, 221),
        mmap=(9, 222),
        futex=(202, 98),
        epoll_wait=(281, 22),
        newest=(999, 999),
    )

    for name, number in ordinary.items():
        assert verdict(program, number, arch=arch_of(machine)) == ALLOW, name


@pytest.mark.parametrize(
    ("name", "both"),
    [
        ("mount", (165, 40)),
        ("umount2", (166, 39)),
        ("pivot_root", (155, 41)),
        ("setns", (308, 268)),
        ("move_mount", (429, 429)),
        ("open_tree", (428, 428)),
        ("fsopen", (430, 430)),
        ("fsconfig", (431, 431)),
        ("fsmount", (432, 432)),
        ("fspick", (433, 433)),
        ("mount_setattr", (442, 442)),
        ("quotactl", (179, 60)),
        ("bpf", (321, 280)),
        ("perf_event_open", (298, 241)),
        ("userfaultfd", (323, 282)),
        ("keyctl", (250, 219)),
        ("add_key", (248, 217)),
        ("request_key", (249, 218)),
        ("kexec_load", (246, 104)),
        ("init_module", (175, 105)),
        ("finit_module", (313, 273)),
        ("delete_module", (176, 106)),
        ("open_by_handle_at", (304, 265)),
        ("ptrace", (101, 117)),
        ("process_vm_readv", (310, 270)),
        ("process_vm_writev", (311, 271)),
        ("pidfd_getfd", (438, 438)),
        ("kcmp", (312, 272)),
        ("chroot", (161, 51)),
        ("open_tree_attr", (467, 467)),
        ("quotactl_fd", (443, 443)),
        ("swapon", (167, 224)),
        ("swapoff", (168, 225)),
        ("fanotify_init", (300, 262)),
        ("nfsservctl", (180, 42)),
        ("lookup_dcookie", (212, 18)),
        ("sysfs", (139, None)),
        ("ustat", (136, None)),
        ("kexec_file_load", (320, 294)),
        ("create_module", (174, None)),
        ("get_kernel_syms", (177, None)),
        ("query_module", (178, None)),
        ("syslog", (103, 116)),
        ("acct", (163, 89)),
        ("reboot", (169, 142)),
        ("_sysctl", (156, None)),
        ("uselib", (134, None)),
        ("settimeofday", (164, 170)),
        ("clock_settime", (227, 112)),
        ("clock_adjtime", (305, 266)),
        ("sethostname", (170, 161)),
        ("setdomainname", (171, 162)),
        ("vhangup", (153, 58)),
        ("iopl", (172, None)),
        ("ioperm", (173, None)),
        ("modify_ldt", (154, None)),
    ],
)
def test_dangerous_calls_are_denied(machine: str, name: str, both: tuple[int, int | None]) -> None:
    """With EPERM, whatever their arguments; the numbers are those of the kernel's headers."""
    number = both[machine == "aarch64"]
    if number is None:
        return  # this architecture does not have the call

    for args in ((), (2**64 - 1,) * 6):
        assert verdict(seccomp_filter(machine), number, *args, arch=arch_of(machine)) == EPERM


def test_calls_with_an_older_form_seem_absent(machine: str) -> None:
    """clone3 and io_uring fail with ENOSYS, so that libraries take the way round."""
    for number in (435, 425, 426, 427):
        assert verdict(seccomp_filter(machine), number, arch=arch_of(machine)) == ENOSYS


@pytest.mark.parametrize("flag", [1 << bit for bit in (17, 25, 26, 27, 28, 29, 30)])
def test_clone_makes_processes_and_threads_but_no_namespaces(machine: str, flag: int) -> None:
    """Each CLONE_NEW flag is denied, in company as well; fork and pthread_create pass."""
    program = seccomp_filter(machine)
    clone = numbers(machine, clone=(56, 220))["clone"]
    unshare = numbers(machine, unshare=(272, 97))["unshare"]
    arch = arch_of(machine)

    assert verdict(program, clone, 17, arch=arch) == ALLOW
    assert verdict(program, clone, 0x3D0F00, arch=arch) == ALLOW
    assert verdict(program, clone, flag | 17, arch=arch) == EPERM
    assert verdict(program, clone, flag | 0x3D0F00 | 1 << 40, arch=arch) == EPERM
    assert verdict(program, unshare, flag, arch=arch) == EPERM
    assert verdict(program, unshare, 0x400, arch=arch) == ALLOW


def test_unshare_makes_no_time_namespace(machine: str) -> None:
    """Its flag lies where clone has the exit signal, and counts for unshare only."""
    unshare = numbers(machine, unshare=(272, 97))["unshare"]

    assert verdict(seccomp_filter(machine), unshare, 0x80, arch=arch_of(machine)) == EPERM


@pytest.mark.parametrize("request_number", [0x5412, 0x541C])
def test_no_typing_into_terminals(machine: str, request_number: int) -> None:
    """TIOCSTI and TIOCLINUX are denied, also with bits the kernel drops; other ioctls pass."""
    program = seccomp_filter(machine)
    ioctl = numbers(machine, ioctl=(16, 29))["ioctl"]
    arch = arch_of(machine)

    assert verdict(program, ioctl, 0, request_number, arch=arch) == EPERM
    assert verdict(program, ioctl, 0, request_number | 1 << 32, arch=arch) == EPERM
    assert verdict(program, ioctl, 0, 0x5401, arch=arch) == ALLOW


def test_no_setuid_programs(machine: str) -> None:
    """In a folder of the host they would be so for the host's users; other modes pass."""
    program = seccomp_filter(machine)
    arch = arch_of(machine)
    calls = numbers(machine, fchmod=(91, 52), fchmodat=(268, 53), fchmodat2=(452, 452))

    for name, number in calls.items():
        at = 1 if name == "fchmod" else 2
        for mode in (0o755, 0o1777, 0o600):
            assert verdict(program, number, *[0] * at, mode, arch=arch) == ALLOW
        for mode in (0o4755, 0o2755, 0o6000):
            assert verdict(program, number, *[0] * at, mode, arch=arch) == EPERM
    if machine == "x86_64":
        assert verdict(program, 90, 0, 0o4755) == EPERM


def test_only_limits_of_ones_own_are_set(machine: str) -> None:
    """prlimit64 reads those of any process, and sets those of process 0, which is the caller."""
    program = seccomp_filter(machine)
    prlimit = numbers(machine, prlimit64=(302, 261))["prlimit64"]
    arch = arch_of(machine)

    assert verdict(program, prlimit, 0, 7, 0x7FFF00001000, arch=arch) == ALLOW
    assert verdict(program, prlimit, 1 << 32, 7, 0x1000, arch=arch) == ALLOW  # a pid has 32 bits
    assert verdict(program, prlimit, 1, 7, 0, 0x1000, arch=arch) == ALLOW
    for new in (0x1000, 1 << 32, 0x7FFF00001000):
        for pid in (1, 1 | 1 << 32, -1, 4711):
            assert verdict(program, prlimit, pid, 7, new, arch=arch) == EPERM


def test_only_common_socket_families(machine: str) -> None:
    """Unix, IPv4, IPv6 and netlink; the others say that they are not supported."""
    program = seccomp_filter(machine)
    calls = numbers(machine, socket=(41, 198), socketpair=(53, 199))

    for number in calls.values():
        for family in (1, 2, 10, 16):
            assert verdict(program, number, family, 1, 0, arch=arch_of(machine)) == ALLOW
        for family in {*range(3, 50)} - {10, 16}:
            answer = verdict(program, number, family, 1, 0, arch=arch_of(machine))
            assert answer == FAIL | errno.EAFNOSUPPORT


@pytest.mark.parametrize("arch", [I386, ARM, 0, 0xFFFFFFFF])
@pytest.mark.parametrize("number", [0, 21, 26, 120, 165, 310, 0x4000009B])
def test_other_architectures_get_nothing(machine: str, arch: int, number: int) -> None:
    """A 32-bit program's numbers mean other calls, so that none of its calls passes."""
    assert verdict(seccomp_filter(machine), number, arch=arch) == ENOSYS


def test_the_other_machine_is_another_architecture() -> None:
    """A filter made for one machine lets nothing pass on the other."""
    assert verdict(seccomp_filter("x86_64"), 0, arch=AARCH64) == ENOSYS
    assert verdict(seccomp_filter("aarch64"), 63, arch=X86_64) == ENOSYS


@pytest.mark.parametrize("number", [0, 165, 59, 101, 520, 521])
def test_the_x32_form_of_a_call_gets_nothing(number: int) -> None:
    """Numbers with the x32 bit are no way round the list."""
    assert verdict(seccomp_filter("x86_64"), number | 0x40000000) == ENOSYS


def test_tracing_can_be_allowed(machine: str) -> None:
    """And then only tracing."""
    program = seccomp_filter(machine, allow_ptrace=True)
    arch = arch_of(machine)
    traced = numbers(machine, ptrace=(101, 117), process_vm_readv=(310, 270))
    mount = numbers(machine, mount=(165, 40))["mount"]

    assert {verdict(program, number, arch=arch) for number in traced.values()} == {ALLOW}
    assert verdict(program, mount, arch=arch) == EPERM


def test_no_filter_no_sandbox() -> None:
    """A machine without a table is refused, not started unfiltered."""
    with pytest.raises(SandboxConfigurationError, match="riscv64"):
        seccomp_filter("riscv64")
