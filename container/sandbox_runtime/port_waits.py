"""Those who wait until a port is ready: looked after together, seldom when it takes long."""

from __future__ import annotations

import time

from sandbox_kernel.errors import (
    OperationInterruptedError,
    ProcessAbortedError,
    ProcessExitedBeforeReadyError,
    ProcessReadyTimeoutError,
)
from sandbox_kernel.wire.port_operations import PortReady
from sandbox_runtime.http_probe import HttpProbe
from sandbox_runtime.listeners import LOOPBACK, listening, reachable_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_kernel.errors import SandboxError
    from sandbox_kernel.wire.port_operations import WaitPortRequest
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.loop import Loop, Timer
    from sandbox_runtime.processes import Process, Processes

__all__ = ["PortWaits", "pause_after"]

_SHORTEST_PAUSE = 0.005
_LONGEST_PAUSE = 0.25

_NOBODY = f"nothing listens at {' or '.join(LOOPBACK)}"


def pause_after(waited: float) -> float:
    """Return how long not to look, after so long a wait: a tenth of it, within bounds."""
    return min(max(_SHORTEST_PAUSE, waited / 10), _LONGEST_PAUSE)


class _Wait:
    def __init__(self, request: WaitPortRequest, exchange: Exchange, began: float) -> None:
        self.request = request
        self.exchange = exchange
        self.began = began
        self.last = _NOBODY
        self.probe: HttpProbe | None = None
        self.timer: Timer | None = None
        self.forget_process: Callable[[], None] = _nothing


class PortWaits:
    """Every wait under way."""

    def __init__(self, loop: Loop, processes: Processes, on_end: Callable[[int], None]) -> None:
        self._loop = loop
        self._processes = processes
        self._on_end = on_end
        self._waits: list[_Wait] = []
        self._timer: Timer | None = None

    def begin(self, request: WaitPortRequest, exchange: Exchange) -> None:
        """Answer the exchange when the port is ready, or will not be.

        Raises
        ------
        ProcessNotFoundError
            There is no such process; the wait has ended.
        """
        wait = _Wait(request, exchange, time.monotonic())
        self._waits.append(wait)
        exchange.on_cancel = lambda: self._fail(
            wait, OperationInterruptedError("port.wait", "the call was cancelled")
        )
        if request.timeout is not None:
            wait.timer = self._loop.call_at(wait.began + request.timeout, lambda: self._late(wait))
        if request.process_id is not None:
            try:
                wait.forget_process = self._processes.when_exited(
                    request.process_id, lambda process: self._exited(wait, process)
                )
            except BaseException:
                self._forget(wait)
                raise
        if wait in self._waits:
            self._look()

    # --- looking ------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waits:
            return
        try:
            ports, trouble = listening(), ""
        except OSError as error:
            ports, trouble = {}, f"the system does not say who listens ({error.strerror})"
        now = time.monotonic()
        for wait in list(self._waits):
            if wait.probe is not None:
                continue
            if not reachable_at(ports.get(wait.request.port, [])):
                wait.last = trouble or _NOBODY
            elif wait.request.mode == "http":
                self._probe(wait)
            else:
                self._ready(wait, None)
        idle = [now - each.began for each in self._waits if each.probe is None]
        if idle:
            self._timer = self._loop.call_later(pause_after(min(idle)), self._look)

    def _probe(self, wait: _Wait) -> None:
        def done(outcome: int | str) -> None:
            wait.probe = None
            if isinstance(outcome, str):
                wait.last = outcome
            elif wait.request.min_status <= outcome <= wait.request.max_status:
                self._ready(wait, outcome)
            else:
                wait.last = f"it answers with status {outcome}"
            if wait in self._waits and self._timer is None:
                pause = pause_after(time.monotonic() - wait.began)
                self._timer = self._loop.call_later(pause, self._look)

        wait.probe = HttpProbe(self._loop, wait.request.port, wait.request.path, done)

    # --- ends ---------------------------------------------------------------------------------

    def _ready(self, wait: _Wait, status: int | None) -> None:
        if self._forget(wait):
            waited = time.monotonic() - wait.began
            wait.exchange.result(PortReady(port=wait.request.port, status=status, waited=waited))

    def _late(self, wait: _Wait) -> None:
        request = wait.request
        error = ProcessReadyTimeoutError(
            request.port, request.timeout or 0.0, wait.last, process_id=request.process_id
        )
        self._fail(wait, error)

    def _exited(self, wait: _Wait, process: Process) -> None:
        if process.reason == "stopped":
            self._fail(wait, ProcessAbortedError(process.process_id))
            return
        code = process.exit_code or 0
        self._fail(wait, ProcessExitedBeforeReadyError(wait.request.port, process.process_id, code))

    def _fail(self, wait: _Wait, error: SandboxError) -> None:
        if self._forget(wait):
            wait.exchange.fail(error)

    def _forget(self, wait: _Wait) -> bool:
        if wait not in self._waits:
            return False
        self._waits.remove(wait)
        wait.forget_process()
        if wait.timer is not None:
            wait.timer.cancel()
        if wait.probe is not None:
            wait.probe.cancel()
        self._on_end(wait.request.port)
        return True


def _nothing() -> None:
    """Stand for what need not be taken back."""
