"""What a sandbox must not reach; each of these fails when its isolation is off."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
from ast import literal_eval
from pathlib import Path

import pytest

from sandbox_kernel.engines import start
from sandbox_kernel.engines.base import Launch, SandboxSpec, StateLayout
from sandbox_kernel.engines.bubblewrap import BubblewrapEngine
from tests.support.host_user import HostSandbox, HostUser, StartRefusedError
from tests.support.runtime_child import Client

# Says what became of an attempt: "done", or the error's name.
ATTEMPT = """
import errno, sys
def attempt(call, *args):
    try:
        call(*args)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "done"
"""

# Every file that is not a part of the system or of an installed package.
EVERY_FILE = """
import os
def every_file():
    for folder, folders, files in os.walk("/"):
        folders[:] = [each for each in folders if each != "site-packages"
                      and os.path.join(folder, each) not in ("/proc", "/usr")]
        for each in files:
            yield os.path.join(folder, each)
"""

SYSCALL = (
    ATTEMPT
    + """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def syscall(number, *args):
    ctypes.set_errno(0)
    if libc.syscall(number, *args) == -1:
        raise OSError(ctypes.get_errno(), "")
"""
)


def test_homes_of_the_host_are_out_of_reach(user: HostUser, box: HostSandbox) -> None:
    """A file in the starter's home cannot be read, at its path or by name anywhere."""
    secret = user.write(user.home / "secret-of-the-host.txt", "secret")

    out = box.python(
        EVERY_FILE
        + f"""
print(os.path.exists({str(secret)!r}))
print(sorted(os.listdir("/home")))
print([each for each in every_file() if each.endswith("secret-of-the-host.txt")])
"""
    )

    assert out.splitlines() == ["False", "['user']", "[]"]


def test_the_state_of_sandboxes_is_out_of_reach(user: HostUser, box: HostSandbox) -> None:
    """Neither its own state folder nor another sandbox's files, sockets or logs are visible."""
    with user.start("neighbour") as other:
        other.run("sh", "-c", "echo private > /workspace/mine; echo private > /tmp/mine")

        paths = [str(box.root), str(other.root), other.told["socket"], "/workspace/mine"]
        out = box.python(f"import os; print([os.path.lexists(p) for p in {[*paths, '/tmp/mine']}])")
        sockets = box.python("print(open('/proc/net/unix').read().count('runtime.sock'))")

    assert out == str([False] * 5)
    assert sockets == "0"


def test_processes_of_the_host_are_invisible(box: HostSandbox) -> None:
    """/proc shows the runtime and what runs inside, nothing else."""
    out = box.python(
        "import os; print([int(each) for each in os.listdir('/proc') if each.isdigit()])"
    )
    pids = literal_eval(out)

    assert 1 in pids
    assert len(pids) <= 4
    assert len([each for each in os.listdir("/proc") if each.isdigit()]) > len(pids)


def test_processes_of_the_host_cannot_be_signalled(box: HostSandbox) -> None:
    """A signal to a process id of the host finds no process; nothing inside can end the runtime."""
    out = box.python(
        ATTEMPT
        + f"""
import os, signal
print(attempt(os.kill, {os.getpid()}, 0))
os.kill(1, signal.SIGKILL)
"""
    )

    assert out == "ESRCH"
    assert box.run("true")[0] == 0


def test_the_host_network_is_out_of_reach(box: HostSandbox) -> None:
    """A listener on the host's loopback answers the host and not the sandbox."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()

        out = box.python(
            ATTEMPT
            + f"""
import socket
print(attempt(socket.create_connection, ("127.0.0.1", {port}), 3))
print(attempt(socket.create_connection, ("192.0.2.1", 80), 3))
print([name for _, name in socket.if_nameindex()])
"""
        )

    assert out.splitlines() == ["ECONNREFUSED", "ENETUNREACH", "['lo']"]


def test_abstract_sockets_of_the_host_are_out_of_reach(box: HostSandbox) -> None:
    """Sockets without a path belong to the network namespace: the desktop's bus, X11."""
    name = f"\0sandbox-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(name)

        out = box.python(
            ATTEMPT
            + f"import socket; print(attempt(socket.socket(socket.AF_UNIX).connect, {name!r}))"
        )

    assert out == "ECONNREFUSED"


def test_loopback_works_inside(box: HostSandbox) -> None:
    """Programs inside talk to each other over a loopback of their own."""
    out = box.python(
        "import socket; s = socket.create_server(('127.0.0.1', 0));"
        "socket.create_connection(s.getsockname(), 3); print('done')"
    )

    assert out == "done"


def test_families_beside_the_network_are_refused(box: HostSandbox) -> None:
    """A virtual machine's own channel to its host is no way round the network namespace."""
    out = box.python(ATTEMPT + "import socket; print(attempt(socket.socket, 40, 1))")

    assert out == "EAFNOSUPPORT"


def test_no_capabilities_and_none_to_be_had(box: HostSandbox) -> None:
    """No capability in any set, no new privileges, and the filter is on."""
    status = dict(
        line.split(":\t", 1)
        for line in box.python("print(open('/proc/self/status').read())").splitlines()
        if ":\t" in line
    )

    assert {status[each].strip("0") for each in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {""}
    assert status["CapBnd"].strip("0") == ""
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_the_user_inside_is_nobody_special(box: HostSandbox) -> None:
    """uid and gid 1000, named user, in no further group that means anything."""
    out = box.python(
        "import os, pwd, grp; print(os.getuid(), os.getgid(), pwd.getpwuid(1000).pw_name,"
        "grp.getgrgid(1000).gr_name, os.path.expanduser('~'), os.getcwd())"
    )

    assert out == "1000 1000 user user /home/user /workspace"


@pytest.mark.parametrize(
    "call",
    [
        "syscall, 272, 0x10000000",
        "syscall, 272, 0x00020000",
        "syscall, 165, b'x', b'/tmp', b'tmpfs', 0, 0",
        "syscall, 166, b'/proc', 0",
        "syscall, 155, b'/tmp', b'/tmp'",
        "syscall, 308, 0, 0",
        "syscall, 101, 0, 0, 0, 0",
        "syscall, 310, 1, 0, 0, 0, 0, 0",
        "syscall, 321, 0, 0, 0",
        "syscall, 248, b'user', b'x', b'y', 1, -3",
        "syscall, 430, b'tmpfs', 0",
        "syscall, 442, -100, b'/', 0, 0, 0",
        "syscall, 56, 0x10000011, 0, 0, 0, 0",
        "fcntl.ioctl, 0, 0x5412, b'x'",
        "fcntl.ioctl, 0, 0x541c, b'x'",
    ],
)
def test_dangerous_calls_are_refused(box: HostSandbox, call: str) -> None:
    """Namespaces, mounts, tracing, keys and typing into terminals: EPERM, whoever asks."""
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers are those of x86_64; test_seccomp.py proves the other table")

    out = box.python(SYSCALL + f"import fcntl, os; print(attempt({call}))")

    assert out == "EPERM"


def test_limits_of_the_runtime_cannot_be_set(box: HostSandbox) -> None:
    """Without descriptors it could start no further kernel; a program may set its own."""
    out = box.python(
        ATTEMPT
        + """
import resource
few, now = (3, 3), resource.getrlimit(resource.RLIMIT_NOFILE)
def of_the_runtime():
    try:
        resource.prlimit(1, resource.RLIMIT_NOFILE, few)
    except PermissionError as error:
        raise OSError(error.errno, "") from None
print(attempt(of_the_runtime), resource.prlimit(1, resource.RLIMIT_NOFILE)[0] > 3)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, now[1]))
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    )

    assert out.splitlines() == ["EPERM True", "3"]


def test_no_setuid_programs_can_be_made(box: HostSandbox) -> None:
    """A file of root's sandbox belongs to root on the host, too."""
    code, _, err = box.run("sh", "-c", "cp /usr/bin/true made && chmod u+s made")

    assert code != 0
    assert "Operation not permitted" in err
    assert box.run("chmod", "755", "made")[0] == 0
    assert not (box.root / "workspace" / "made").stat().st_mode & 0o6000


def test_nested_user_namespaces_are_refused(box: HostSandbox) -> None:
    """Also by the ordinary program for it."""
    code, _, err = box.run("unshare", "--user", "true")

    assert code != 0
    assert "Operation not permitted" in err


def test_the_limit_on_user_namespaces_holds_without_the_filter(
    tmp_path: Path, warm_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two walls: a call the filter does not know would make none either."""
    allow_everything = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
    monkeypatch.setattr(start, "seccomp_filter", lambda *_, **__: allow_everything)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(warm_cache))
    engine, layout = BubblewrapEngine(), StateLayout(tmp_path / "state")
    launch = Launch(
        sandbox_id="box",
        lifetime=f"test-{os.getpid()}-unfiltered",
        token="token",
        spec=SandboxSpec(sleep_after=None),
        layout=layout,
    )
    instance = engine.start(launch)
    try:
        with Client(instance.socket, "token") as client:
            _, err, end = client.run("unshare", "--user", "true")
    finally:
        engine.stop(instance, layout, grace=0)

    assert end.exit_code != 0
    assert b"No space left on device" in err


@pytest.mark.parametrize("kind", ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"])
def test_every_namespace_is_the_sandboxs_own(box: HostSandbox, kind: str) -> None:
    """None is shared with the host."""
    inside = box.python(f"import os; print(os.readlink('/proc/self/ns/{kind}'))")

    assert inside.startswith(f"{kind}:[")
    assert inside != os.readlink(f"/proc/self/ns/{kind}")


def test_shared_memory_of_the_host_is_out_of_reach(box: HostSandbox) -> None:
    """System V segments have no path; they belong to the IPC namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    create, everybody, remove = 0o1000, 0o666, 0
    segment = libc.shmget(0, 4096, create | everybody)
    assert segment >= 0
    try:
        listed = Path("/proc/sysvipc/shm").read_text().splitlines()
        inside = box.python("print(len(open('/proc/sysvipc/shm').readlines()))")
    finally:
        libc.shmctl(segment, remove, None)

    assert any(line.split()[1] == str(segment) for line in listed[1:])
    assert inside == "1"


def test_no_terminal_of_the_host_controls_it(box: HostSandbox) -> None:
    """The runtime leads a session of its own, that has none."""
    out = box.python(
        "import os; print(os.getsid(1), open('/proc/1/stat').read().rpartition(')')[2].split()[4])"
    )

    assert out == "1 0"


def test_only_folders_of_its_own_can_be_written(box: HostSandbox) -> None:
    """Everything of the host is mounted read-only, whatever its permissions say."""
    out = box.python(
        """
import stat, os
for line in open("/proc/self/mountinfo"):
    before, _, after = line.partition(" - ")
    fields = before.split()
    if "rw" in fields[5].split(","):
        is_device = stat.S_ISCHR(os.stat(fields[4]).st_mode)
        if after.split()[0] != "overlay" and not is_device:
            print(fields[4])
"""
    )

    assert set(out.splitlines()) <= {
        *("/proc", "/dev/pts", "/dev/shm", "/tmp"),
        *("/workspace", "/home/user", "/var/spool/sandbox", "/opt/packages"),
    }


def test_sockets_and_settings_of_running_services_are_out_of_reach(box: HostSandbox) -> None:
    """/run, where buses and daemons listen, is the sandbox's own."""
    assert box.python("import os; print(os.listdir('/run'))") == "[]"


def test_the_counter_of_memory_kills_is_read_only(user: HostUser) -> None:
    """In version 1 writing to it switches the killing off."""
    try:
        sandbox = user.start("counted", limits={"memory_bytes": 200 << 20})
    except StartRefusedError:
        pytest.skip("this user may make no control groups, so that nothing is counted")
    with sandbox:
        path = "/run/sandbox/memory.events"
        out = sandbox.python(
            f"import os; print(os.access({path!r}, os.R_OK), os.access({path!r}, os.W_OK))"
        )

    assert out == "True False"


@pytest.mark.parametrize(
    "path",
    [
        *("/usr/bin", "/usr/bin/env", "/etc", "/etc/passwd", "/", "/home", "/opt", "/dev", "/run"),
        *("/opt/sandbox", "/opt/sandbox/sandbox_runtime/__main__.py"),
    ],
)
def test_the_system_is_read_only(box: HostSandbox, path: str) -> None:
    """Programs, settings, the runtime's code and the root itself cannot be changed.

    Asked for without trying, since a failure here would change the host.
    """
    out = box.python(f"import os; print(os.path.exists({path!r}), os.access({path!r}, os.W_OK))")

    assert out == "True False"


def test_settings_of_the_kernel_cannot_be_opened_for_writing(box: HostSandbox) -> None:
    """Nothing in /proc outside processes' own folders, also for a sandbox that root started.

    Opening is enough to prove it; nothing is ever written.
    """
    out = box.python(
        """
import os
found = []
for folder, folders, files in os.walk("/proc"):
    if folder == "/proc":
        folders[:] = [each for each in folders if not each.isdigit()
                      and each not in ("self", "thread-self", "pressure")]
    for name in files:
        try:
            os.close(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_NONBLOCK))
            found.append(f"{folder}/{name}")
        except OSError:
            pass
print(found)
"""
    )

    assert out == "[]"


@pytest.mark.parametrize("name", ["kpagecount", "kpageflags", "slabinfo", "kmsg", "kcore"])
def test_memory_of_the_machine_cannot_be_read(box: HostSandbox, name: str) -> None:
    """Files of /proc that only root may read tell nothing to root's sandbox either."""
    out = box.python(
        f"""
try:
    print(len(open("/proc/{name}", "rb", buffering=0).read(8)))
except OSError as error:
    print(0)
"""
    )

    assert out == "0"


def test_only_harmless_devices_exist(box: HostSandbox) -> None:
    """No disk, no memory, no kernel log: only what programs cannot do without."""
    out = box.python("import os; print(sorted(os.listdir('/dev')))")

    assert set(literal_eval(out)) <= {
        *("core", "console", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr"),
        *("stdin", "stdout", "tty", "urandom", "zero"),
    }
    assert box.python("import os; print(os.path.exists('/sys'))") == "False"


def test_terminals_work(box: HostSandbox) -> None:
    """Pseudo-terminals come from an instance of the sandbox's own."""
    out = box.python("import os; m, s = os.openpty(); print(os.ttyname(s))")

    assert out.startswith("/dev/pts/")


def test_the_token_is_out_of_reach(box: HostSandbox) -> None:
    """The runtime's memory, descriptors and environment are closed to the programs it runs."""
    out = box.python(
        ATTEMPT
        + """
import os
for name in ("mem", "environ", "maps", "auxv"):
    print(attempt(lambda: open(f"/proc/1/{name}", "rb").read(1)))
# The names of descriptors may show to root's sandbox; what they are of does not.
def reach():
    for each in os.listdir("/proc/1/fd"):
        for way in (os.readlink, lambda path: os.close(os.open(path, os.O_RDONLY))):
            try:
                way(f"/proc/1/fd/{each}")
            except PermissionError:
                continue
            return
    raise PermissionError(errno.EACCES, "")
print(attempt(reach))
print(open("/proc/1/cmdline", "rb").read().replace(b"\\0", b" ").decode())
own = [os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")
       if os.path.lexists(f"/proc/self/fd/{each}")]
print([each for each in own if "lock" in each or "socket" in each or "memfd" in each])
print(any("token-box" in value for value in os.environ.values()))
"""
    )
    lines = out.splitlines()

    assert lines[:5] == ["EACCES"] * 5
    assert box.token not in lines[5]
    assert str(box.root) not in lines[5]
    assert lines[6:] == ["[]", "False"]


def test_command_lines_tell_nothing(box: HostSandbox) -> None:
    """Seen from the host, neither the token nor a path of the state is in any command line."""
    mine = Path(f"/proc/{box.pid}/cmdline").read_bytes()
    everybody = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, check=True).stdout

    assert mine
    assert box.token.encode() not in everybody
    assert str(box.root).encode() not in mine


def test_the_environment_of_the_host_stays_outside(user: HostUser, box: HostSandbox) -> None:
    """Programs see variables made for them, and nothing of the starter's."""
    out = box.python("import os; print(sorted(os.environ))")

    first = Path(f"/proc/{box.pid}/environ").read_bytes() if os.geteuid() == 0 else b""
    names = {each.partition(b"=")[0] for each in first.split(b"\0")} - {b""}
    assert names <= {b"PATH", b"HOME", b"LANG", b"PWD"}
    assert not {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH"} & set(literal_eval(out))
    assert str(user.home) not in box.python("import os; print(dict(os.environ))")


def test_the_socket_belongs_to_its_user(box: HostSandbox) -> None:
    """The runtime's door and its folder are closed to other users of the host."""
    path = Path(box.told["socket"])

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_door_is_not_inside(box: HostSandbox) -> None:
    """No path inside leads to the runtime's socket."""
    out = box.python(
        EVERY_FILE
        + """
import stat
print([each for each in every_file() if stat.S_ISSOCK(os.lstat(each).st_mode)])
"""
    )

    assert out == "[]"


def test_one_token_opens_one_sandbox(user: HostUser, box: HostSandbox) -> None:
    """Another sandbox's token is refused."""
    from sandbox_kernel.errors import UnauthorizedError
    from tests.support.runtime_child import Client

    with (
        user.start("other") as other,
        Client(box.told["socket"], other.token) as client,
        pytest.raises(UnauthorizedError),
    ):
        client.welcome()


def test_memory_behind_folders_is_bounded(box: HostSandbox) -> None:
    """Every folder in memory that can be written has a size."""
    out = box.python(
        """
for line in open("/proc/self/mountinfo"):
    before, _, after = line.partition(" - ")
    fields = before.split()
    if after.startswith("tmpfs") and "rw" in fields[5].split(",") and "size=" not in after:
        print(fields[4])
"""
    )

    assert out == ""


def test_identifiers_of_the_machine_stay_outside(box: HostSandbox) -> None:
    """Host name and machine id are the sandbox's own."""
    out = box.python(
        "import os, socket; print(socket.gethostname(), os.path.exists('/etc/machine-id'))"
    )

    assert out == "box False"


def test_other_users_of_the_host_cannot_connect(user: HostUser, box: HostSandbox) -> None:
    """Whoever they are: the door's folder is closed to them."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"

    other = subprocess.run(
        ["/usr/bin/python3", "-c", connect, box.told["socket"]],
        user=user.uid + 1 if user.uid else 64124,
        group=64124,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "PermissionError" in other.stderr
