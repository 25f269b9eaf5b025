"""What a daemon can do with an image, found out by running it once.

Does the container see the host's files, can it write them, does a unix socket reach through, which
limits does it have?  That depends on where the daemon runs (this machine, a virtual one, another
one), on how it runs (as root, rootless, with other user ids), and on the OCI runtime.  Nothing but
a trial can tell.  It takes half a second, so what it found is kept until the machine's next boot.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox_kernel.engines import docker_daemon as daemon
from sandbox_kernel.engines.base import Limits
from sandbox_kernel.engines.docker_body import Bind, ContainerPlan, create_body
from sandbox_kernel.engines.docker_handover import Handover
from sandbox_kernel.engines.incarnation import boot_id
from sandbox_kernel.engines.runtime_code import cache_folder
from sandbox_kernel.errors import EngineUnavailableError

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Facts", "Image", "find_image", "try_image"]

OLDEST_PYTHON = (3, 11)

_PATIENCE = 20.0
_MEMORY = 128 << 20
_PROCESSES = 64
_INSIDE = "/trial"
# Runs in the container, by any Python; prints what it found.
_SCRIPT = r"""
import array, json, os, socket, sys
found = {"python": list(sys.version_info[:2]), "shell": "/bin/bash"}
if not os.path.exists("/bin/bash"):
    found["shell"] = "/bin/sh"
def read(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""
found["mark"] = read("/trial/mark")
try:
    with open("/trial/private/written", "w") as file:
        file.write("x")
    found["writes"] = True
except OSError:
    found["writes"] = False
group = "/sys/fs/cgroup"
found["memory"] = read(group + "/memory.max") or read(group + "/memory/memory.limit_in_bytes")
found["processes"] = read(group + "/pids.max") or read(group + "/pids/pids.max")
quota = read(group + "/cpu.max").split(" ")[0] or read(group + "/cpu/cpu.cfs_quota_us")
found["cpus"] = quota
found["events"] = ""
for path in (group + "/memory.events", group + "/memory/memory.oom_control"):
    if "oom_kill " in read(path):
        found["events"] = path
found["socket"] = False
try:
    host = socket.socket(socket.AF_UNIX)
    host.settimeout(15)
    host.connect("/trial/door/start.sock")
    _, given, _, _ = host.recvmsg(1, socket.CMSG_LEN(4))
    fds = array.array("i")
    fds.frombytes(given[0][2])
    listener = socket.socket(fileno=fds[0])
    found["socket"] = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
except Exception as error:
    found["refusal"] = str(error)
import importlib.util, site
site.main()
found["kernel"] = importlib.util.find_spec("ipykernel") is not None
print(json.dumps(found))
"""


@dataclass(frozen=True, kw_only=True)
class Image:
    """What an image says of itself."""

    id: str
    env: dict[str, str]
    labels: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a daemon can do with an image.

    Parameters
    ----------
    python : list of int
        The version of the image's Python.
    shell : str
        The best shell in it.
    shares_files : bool
        Whether containers see the host's files.
    writes_files : bool
        Whether the user inside can write what is ours outside.
    shares_sockets : bool
        Whether descriptors can be handed to a process inside.
    limits : list of str
        Which limits hold: ``memory_bytes``, ``cpus``, ``processes``.
    events : str
        File inside that counts who was killed for want of memory, or empty.
    has_kernel : bool
        Whether its Python has ipykernel, without which notebooks do not run in it.
    """

    python: list[int]
    shell: str
    shares_files: bool
    writes_files: bool
    shares_sockets: bool
    limits: list[str]
    events: str
    has_kernel: bool


def find_image(client: APIClient, host: str, name: str) -> Image:
    """Look an image up.

    Raises
    ------
    EngineUnavailableError
        It is not there.
    """
    try:
        with daemon.errors(host):
            found: dict[str, Any] = client.inspect_image(name)
    except daemon.NotThereError as error:
        build = "Build it with container/build.sh" if "/" not in name else f"'docker pull {name}'"
        raise EngineUnavailableError(
            daemon.ENGINE,
            f"there is no image {name!r}",
            f"{build}, or name another with Python 3.11 or later: DockerEngine.image.",
        ) from error
    config = found.get("Config") or {}
    pairs = (each.partition("=") for each in config.get("Env") or ())
    return Image(
        id=found["Id"],
        env={name: value for name, _, value in pairs},
        labels=config.get("Labels") or {},
    )


def try_image(
    client: APIClient, host: str, image: Image, *, user: str, runtime: str | None, python: str
) -> Facts:
    """Return what the daemon can do with an image; remembered until the machine's next boot.

    Raises
    ------
    EngineUnavailableError
        It cannot run it, or there is no Python in it that would do.
    """
    with daemon.errors(host):
        # The daemon's own id: another one may answer at the same address tomorrow.
        key = repr((host, client.info()["ID"] if _is_remote(host) else "", image.id, user))
    key += repr((runtime, python, boot_id(), _SCRIPT))
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:20]
    path = os.path.join(os.path.dirname(cache_folder()), f"docker-{digest}.json")
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Facts(**json.loads(Path(path).read_bytes()))
    facts = _Trial(client, host, image, user=user, runtime=runtime, python=python).run()
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        Path(f"{path}.new").write_text(json.dumps(asdict(facts)), encoding="ascii")
        os.replace(f"{path}.new", path)
    return facts


def _is_remote(host: str) -> bool:
    return not host.startswith(("unix://", "http+unix://"))


class _Trial:
    def __init__(
        self,
        client: APIClient,
        host: str,
        image: Image,
        *,
        user: str,
        runtime: str | None,
        python: str,
    ) -> None:
        self.client = client
        self.host = host
        self.mark = os.urandom(8).hex()
        self.plan = ContainerPlan(
            image=image.id,
            command=(python, "-I", "-S", "-c", _SCRIPT),
            hostname="trial",
            user=user,
            cwd="/",
            network="none",
            labels={"jupyter-sandbox": "trial"},
            limits=Limits(memory_bytes=_MEMORY, cpus=0.5, processes=_PROCESSES),
            tmp_bytes=1 << 20,
            runtime=runtime,
        )

    def run(self) -> Facts:
        """Try with the host's files; without them where the daemon does not see these."""
        place = os.path.dirname(cache_folder())
        os.makedirs(place, mode=0o700, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="docker-", dir=place))
        try:
            (folder / "mark").write_text(self.mark, encoding="ascii")
            folder.chmod(0o755)
            private = folder / "private"
            private.mkdir(0o700)
            uid = int(self.plan.user.partition(":")[0])
            if os.geteuid() == 0:
                os.chown(private, uid, -1)
            with Handover(folder / "door") as handover:
                mounted = replace(
                    self.plan, binds=(Bind(source=str(folder), dest=_INSIDE, read_only=False),)
                )
                try:
                    found = self._run(mounted, handover)
                except daemon.RefusedError as error:
                    if "bind source path does not exist" not in str(error):
                        raise
                    found = self._run(self.plan, None)
        except (daemon.RefusedError, daemon.ConflictError, daemon.NotThereError) as error:
            raise self._unavailable(str(error)) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return self._facts(found)

    def _run(self, plan: ContainerPlan, handover: Handover | None) -> dict[str, Any]:
        with daemon.errors(self.host):
            container = self.client.create_container_from_config(create_body(plan))["Id"]
        try:
            with daemon.errors(self.host):
                self.client.start(container)
            if handover is not None:
                # Anything will do that is a listening socket.
                handover.give(
                    [handover.fileno()], timeout=_PATIENCE, has_ended=lambda: self._ended(container)
                )
            with daemon.errors(self.host):
                code = self.client.wait(container, timeout=_PATIENCE)["StatusCode"]
                said = self.client.logs(container, stdout=True, stderr=True)
        finally:
            with contextlib.suppress(Exception), daemon.errors(self.host):
                self.client.remove_container(container, force=True, v=True)
        lines = said.decode("utf-8", "replace").strip().splitlines()
        if code != 0 or not lines:
            raise self._unavailable(lines[-1] if lines else f"it ended with status {code}")
        found: dict[str, Any] = json.loads(lines[-1])
        return found

    def _ended(self, container: str) -> bool:
        with daemon.errors(self.host):
            return not self.client.inspect_container(container)["State"]["Running"]

    def _facts(self, found: dict[str, Any]) -> Facts:
        if tuple(found["python"]) < OLDEST_PYTHON:
            version = ".".join(map(str, found["python"]))
            raise self._unavailable(f"its Python is {version}, older than 3.11")
        is_seen = found["mark"] == self.mark
        holding = {
            "memory_bytes": found["memory"] == str(_MEMORY),
            "cpus": found["cpus"] == "50000",
            "processes": found["processes"] == str(_PROCESSES),
        }
        return Facts(
            python=found["python"],
            shell=found["shell"],
            shares_files=is_seen,
            writes_files=is_seen and found["writes"],
            shares_sockets=is_seen and found["socket"],
            limits=[name for name, holds in holding.items() if holds],
            events=found["events"],
            has_kernel=found["kernel"],
        )

    def _unavailable(self, reason: str) -> EngineUnavailableError:
        lacks_python = "executable file not found" in reason or "no such file" in reason
        if lacks_python:
            reason = f"it has no program {self.plan.command[0]!r}"
        return EngineUnavailableError(
            daemon.ENGINE,
            f"the image cannot be used: {reason.strip().rstrip('.')}",
            "Use an image with Python 3.11 or later: DockerEngine.image, DockerEngine.python.",
        )
