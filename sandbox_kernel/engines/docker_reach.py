"""Starts the container of a sandbox, and gives its runtime a door: a unix socket, or TCP.

Each of the three ways takes a plan without a door and the runtime's configuration, and returns
where the door is, with what is to be remembered of the containers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox_kernel.engines import docker_daemon as daemon
from sandbox_kernel.engines import recipe
from sandbox_kernel.engines.base import Launch, Limits
from sandbox_kernel.engines.disk import storage_errors, tail
from sandbox_kernel.engines.docker_body import DOOR_PORT, Bind, ContainerPlan, Volume, create_body
from sandbox_kernel.engines.docker_door import DOOR_SCRIPT, Attached, address_of
from sandbox_kernel.engines.docker_handover import NAME, Handover
from sandbox_kernel.engines.docker_labels import LABEL, label_of, remove_container, volume_of
from sandbox_kernel.engines.docker_volumes import make
from sandbox_kernel.errors import (
    ContainerUnavailableError,
    EngineStartError,
    SandboxConfigurationError,
)
from sandbox_kernel.transports.endpoint import Endpoint, connect
from sandbox_kernel.wire.rpc import ClientConnection

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Reach"]

_PATIENCE = 30.0
_WELCOME_PATIENCE = 10.0
_LOOK_AGAIN = 0.25
_LOCK_PATIENCE = 0.5
_DOOR_MEMORY = 64 << 20
_LOOPBACK = ("127.0.0.1", "localhost", "::1", "")
_START = "/run/sandbox"


class Reach:
    """One start's containers.

    Parameters
    ----------
    launch : Launch
        What is started.
    client, host
        The daemon.
    address : str
        Where a door by TCP is published.
    python : str
        The image's Python.
    has_sockets : bool
        Whether the door will be a unix socket.
    """

    def __init__(
        self,
        launch: Launch,
        client: APIClient,
        host: str,
        *,
        address: str,
        python: str,
        has_sockets: bool,
    ) -> None:
        self.launch = launch
        self.layout = launch.layout
        self.client = client
        self.host = host
        self.address = address
        self.python = python
        self.has_sockets = has_sockets
        self.made: list[str] = []
        """The containers that this start has made."""
        self.label = label_of(launch.layout)
        self.name = f"jupyter-sandbox-{launch.sandbox_id[:32]}-{self.label}"

    def by_socket(
        self, plan: ContainerPlan, config: Mapping[str, object]
    ) -> tuple[str, dict[str, Any]]:
        """Listen here, and hand the listening socket to the runtime."""
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(_locked(self))
            listener = stack.enter_context(_listening(self.layout.socket))
            log = stack.enter_context(_log(self.layout.log))
            handover = stack.enter_context(Handover(self.layout.run / "start"))
            start = Bind(source=str(handover.folder), dest=_START)
            plan = replace(plan, binds=(*plan.binds, start), command=_fetching(plan.command))
            container = self._created(plan)
            self._start(container)
            out = stack.enter_context(_config_pipe(_handed_over(config)))
            pid = handover.give(
                [out, listener.fileno(), lock, log],
                timeout=_PATIENCE,
                has_ended=lambda: self._has_ended(container),
            )
            if pid is None:
                raise self._ended_early(container)
        return str(self.layout.socket), {"container": container, "pid": pid}

    def by_port(
        self, plan: ContainerPlan, config: Mapping[str, object]
    ) -> tuple[str, dict[str, Any]]:
        """Have the runtime listen, and its port published by the engine."""
        address = self._address()
        container = self._created(replace(plan, publish=address, reads_stdin=True))
        with contextlib.closing(Attached(self.client, self.host, container)) as attached:
            self._start(container)
            # The configuration ends with the connection.
            attached.send(
                recipe.runtime_config({**config, "listen": {"tcp": DOOR_PORT}, "lock_fd": None})
            )
        reached = address_of(self.client, self.host, container, address)
        endpoint = Endpoint(
            sandbox_id=self.launch.sandbox_id, socket=reached, token=self.launch.token
        )
        if not _is_welcome(endpoint, has_ended=lambda: self._has_ended(container)):
            raise self._ended_early(container)
        return reached, {"container": container}

    def by_door(
        self, plan: ContainerPlan, config: Mapping[str, object]
    ) -> tuple[str, dict[str, Any]]:
        """Let a second container listen, so that the sandbox has no network for it."""
        address = self._address()
        name = volume_of(self.layout, "door")
        make(self.client, self.host, {name: plan.labels}, image=plan.image, user=plan.user)
        shared = Volume(name=name, dest=_START)
        door = self._created(
            ContainerPlan(
                image=plan.image,
                command=(self.python, "-I", "-S", "-c", DOOR_SCRIPT),
                hostname="door",
                user=plan.user,
                cwd="/",
                network="bridge",
                volumes=(shared,),
                labels={**plan.labels, LABEL: "door"},
                limits=Limits(memory_bytes=_DOOR_MEMORY, processes=8),
                tmp_bytes=1 << 20,
                read_only=True,
                publish=address,
                reads_stdin=True,
            ),
            name=f"{self.name}-door",
        )
        content = recipe.runtime_config(_handed_over(config))
        with contextlib.closing(Attached(self.client, self.host, door)) as attached:
            self._start(door)
            attached.send(b"%d\n" % len(content) + content)
            if not attached.wait_for(b"open\n", timeout=_PATIENCE):
                raise self._failed(f"its door did not open: {attached.said[-500:]}")
            shown = replace(shared, read_only=True)
            container = self._created(
                replace(plan, volumes=(*plan.volumes, shown), command=_fetching(plan.command))
            )
            self._start(container)
            reached = address_of(self.client, self.host, door, address)
            deadline = time.monotonic() + _PATIENCE
            while not attached.wait_for(b"taken\n", timeout=_LOOK_AGAIN):
                if time.monotonic() > deadline or self._has_ended(container):
                    raise self._ended_early(container, runtime=plan.runtime)
        endpoint = Endpoint(
            sandbox_id=self.launch.sandbox_id, socket=reached, token=self.launch.token
        )
        if not _is_welcome(endpoint, has_ended=lambda: self._has_ended(container)):
            raise self._ended_early(container, runtime=plan.runtime)
        return reached, {"container": container, "door": door}

    def check_alone(self) -> None:
        """Make sure that no container of the sandbox runs, where no lock would tell.

        Raises
        ------
        EngineStartError
            One does.
        """
        if self.has_sockets:
            return
        # Not the one that had its door: that ends by itself, a moment later.
        labels = {"label": [f"{LABEL}.state={self.label}", f"{LABEL}=sandbox"]}
        with daemon.errors(self.host):
            running = self.client.containers(filters=labels)
        if running:
            raise self._failed("an earlier container of it still runs")

    def _address(self) -> str:
        """Return the address of the engine's host at which a door may be published."""
        given = self.address
        kind, _, rest = self.host.partition("://")
        machine = rest.rpartition("@")[2].partition("/")[0].rpartition(":")[0] or rest
        is_here = kind in ("unix", "http+unix", "npipe") or machine in _LOOPBACK
        if given in _LOOPBACK and not is_here:
            raise SandboxConfigurationError(
                f"The Docker engine at {self.host} runs on another machine, and a sandbox's door"
                f" at {given} could not be reached there.",
                hint="Set DockerEngine.address to an address of that machine which only you and it"
                " can reach, such as that of a tunnel: what passes there is not encrypted.",
                context={"setting": "DockerEngine.address"},
            )
        return given

    def _start(self, container: str) -> None:
        with daemon.errors(self.host, "start a container on"):
            self.client.start(container)

    def _created(self, plan: ContainerPlan, *, name: str | None = None) -> str:
        """Create a container; one that an earlier start left under its name goes first."""
        name = name or self.name
        for attempt in (1, 2):
            try:
                with daemon.errors(self.host, "create a container on"):
                    made = self.client.create_container_from_config(create_body(plan), name)
                self.made.append(str(made["Id"]))
                return self.made[-1]
            except daemon.ConflictError as error:
                if attempt == 2 or not self._is_left_over(name):
                    raise self._failed(f"another container has the name {name!r}") from error
                remove_container(self.client, self.host, name)
        raise AssertionError

    def _is_left_over(self, name: str) -> bool:
        """Whether a container is of an earlier start of ours, and nobody's any more."""
        try:
            with daemon.errors(self.host):
                found = self.client.inspect_container(name)
        except daemon.NotThereError:
            return True
        # By then it is known that the sandbox does not run.
        return bool(found["Config"]["Labels"].get(f"{LABEL}.state") == self.label)

    def _has_ended(self, container: str) -> bool:
        try:
            with daemon.errors(self.host):
                return not self.client.inspect_container(container)["State"]["Running"]
        except daemon.NotThereError:
            return True

    def _ended_early(self, container: str, *, runtime: str | None = None) -> EngineStartError:
        """Return the error of a runtime that did not come up, with what its container said."""
        with contextlib.suppress(daemon.NotThereError, OSError), daemon.errors(self.host):
            said = self.client.logs(container, stdout=True, stderr=True, tail=20)
            with open(self.layout.log, "ab") as log:
                log.write(said)
        reason = "its runtime ended before it answered"
        if runtime is not None:
            reason += (
                f"; DockerEngine.runtime {runtime!r} may be one that takes no sockets over, as"
                " gVisor's is: a sandbox under it needs network = True"
            )
        return self._failed(reason)

    def _failed(self, reason: str) -> EngineStartError:
        return EngineStartError(
            daemon.ENGINE, self.launch.sandbox_id, reason, tail(self.layout.log)
        )


def _fetching(command: tuple[str, ...]) -> tuple[str, ...]:
    return (*command, f"{_START}/{NAME}")


def _handed_over(config: Mapping[str, object]) -> dict[str, object]:
    """Add where the runtime puts what it is given; see `sandbox_runtime.container_main`."""
    return {**config, "listen": {"fd": 21}, "lock_fd": 22}


def _is_welcome(endpoint: Endpoint, *, has_ended: Callable[[], bool]) -> bool:
    """Wait until the runtime greets a client: a published port takes connections before that."""
    deadline = time.monotonic() + _WELCOME_PATIENCE
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(ContainerUnavailableError, OSError),
            connect(endpoint, timeout=_LOOK_AGAIN) as client,
        ):
            client.settimeout(_WELCOME_PATIENCE)
            client.sendall(ClientConnection().hello(endpoint.token, "engine"))
            if client.recv(1):
                return True
        if has_ended():
            return False
        time.sleep(0.01)
    return False


@contextlib.contextmanager
def _locked(start: Reach) -> Iterator[int]:
    """Hold the lock that the runtime will hold: ours is given up once it has a copy of it."""
    path = start.layout.lock
    with storage_errors(path, "open"):
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                # Whoever asks whether the sandbox lives holds it for an instant, too.
                if time.monotonic() > deadline:
                    raise start._failed("an earlier container of it still runs") from error  # noqa: SLF001
                time.sleep(0.001)
            else:
                break
        yield lock
    finally:
        os.close(lock)


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    with (
        storage_errors(path, "listen on"),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as listener,
    ):
        path.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        path.chmod(0o600)
        listener.listen(128)
        yield listener


@contextlib.contextmanager
def _log(path: Path) -> Iterator[int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with storage_errors(path, "open"):
        log = os.open(path, flags, 0o600)
    try:
        yield log
    finally:
        os.close(log)


@contextlib.contextmanager
def _config_pipe(config: Mapping[str, object]) -> Iterator[int]:
    """Yield the end of a pipe that holds the configuration; what is read from it is gone."""
    content = recipe.runtime_config(config)
    out, into = os.pipe()
    try:
        try:
            capacity = fcntl.fcntl(into, fcntl.F_GETPIPE_SZ)
            if capacity < len(content):
                with contextlib.suppress(OSError):
                    capacity = fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, len(content))
            if len(content) > capacity:
                raise SandboxConfigurationError(
                    f"The environment of the sandbox is too large ({len(content)} bytes).",
                    hint=f"Keep what 'env' adds below {capacity} bytes in all.",
                )
            view = memoryview(content)
            while view:
                view = view[os.write(into, view) :]
        finally:
            os.close(into)
        yield out
    finally:
        os.close(out)
