"""The one table of operations: each is declared here once, with its request and what it answers.

``call`` answers once, ``stream`` sends events and then an end, ``channel`` turns its connection
into a two-way channel after the answer.  Times are seconds, sizes bytes, timestamps seconds since
the epoch.  Names of fields are the names Python, TypeScript, the wire and the docs use.
"""

from __future__ import annotations

from sandbox_kernel.wire.names import Name
from sandbox_kernel.wire.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["OPERATIONS", "Kind", "Operation", "Table"]


class Kind(Name):
    """How an operation answers."""

    CALL = "call"
    STREAM = "stream"
    CHANNEL = "channel"


class Operation:
    """One row of the table.

    Parameters
    ----------
    name : str
        What travels on the wire.
    kind : Kind
        How it answers.
    request, result : type of Record
        The parameters, and the answer (of a stream: its end).
    event : type of Record, optional
        What a stream sends before its end.
    idempotent : bool
        Whether sending it twice equals sending it once, so that it may be retried at start-up.
    """

    def __init__(
        self,
        name: str,
        kind: Kind,
        request: type[Record],
        result: type[Record],
        *,
        event: type[Record] | None = None,
        idempotent: bool = False,
    ) -> None:
        self.name = name
        self.kind = kind
        self.request = request
        self.result = result
        self.event = event
        self.idempotent = idempotent

    def __repr__(self) -> str:
        return f"Operation({self.name!r}, {self.kind.value})"


class Empty(Record):
    """No parameters, or nothing to say."""


# --- the runtime itself -----------------------------------------------------------------------


class Health(Record):
    """How the runtime is."""

    sandbox_id: str
    incarnation: str
    pid: int
    uptime: float
    idle_for: float
    sleeps_in: float | None = None
    """Seconds until idle sleep if nothing happens; None while something holds it awake."""
    busy: list[str] = []  # noqa: RUF012  records are frozen
    """What holds it awake now, such as ``process p-1`` or ``kernel k (lease)``."""
    processes: int = 0
    kernels: int = 0
    terminals: int = 0


class ConfigureRequest(Record):
    """Change the idle rules of a running sandbox; fields left at None stay as they are."""

    sleep_after: float | None = None
    keep_alive: bool | None = None


class ShutdownRequest(Record):
    """End everything: TERM to every process group, then KILL after `grace` seconds."""

    grace: float = 5.0


# --- processes --------------------------------------------------------------------------------


class ExecRequest(Record):
    """Run a command to its end and stream what it writes.

    Either argv without a shell, or `command`, a text for the shell of `session`, which keeps what
    it changes; without a session the text has a shell of its own.  argv with a session has that
    session's folder and environment.

    `env` overlays the environment; None unsets a name.  `stdin` of None is the null device; with
    `stdin_open` more of it follows by ``process.write_stdin`` under `process_id`.  After `timeout`
    (of the command, else of the session, else `fallback_timeout`) all it has started is killed.
    """

    argv: list[str] = []  # noqa: RUF012
    command: str | None = None
    session: str | None = None
    process_id: str | None = None
    cwd: str | None = None
    env: dict[str, str | None] = {}  # noqa: RUF012
    timeout: float | None = None
    fallback_timeout: float | None = None
    merge_stderr: bool = False
    stdin_open: bool = False
    stdin: bytes | None = None


class StartProcessRequest(Record):
    """Start argv without a shell, or `command` in a shell of its own.

    It outlives the connection that started it.  With `session` folder and environment are those of
    the session, if there is one.
    """

    argv: list[str] = []  # noqa: RUF012
    command: str | None = None
    session: str | None = None
    cwd: str | None = None
    env: dict[str, str | None] = {}  # noqa: RUF012
    timeout: float | None = None
    merge_stderr: bool = False
    stdin: bool = False
    process_id: str | None = None


class OutputEvent(Record):
    """Bytes one stream wrote; `cursor` names the position after them."""

    stream: str
    cursor: str
    timestamp: float
    data: bytes


class ExecResult(Record):
    """How a command ended."""

    process_id: str
    exit_code: int
    """The code, or 128 plus the signal that ended it."""
    signal: int | None = None
    duration: float
    timed_out: bool = False
    reason: str | None = None
    """Why it was killed, where that is known: ``memory_limit``, ``timeout``, ``cancelled``."""


class ProcessInfo(Record):
    """What is known of a process."""

    process_id: str
    pid: int
    argv: list[str]
    cwd: str
    status: str
    """``starting`` (waits for its session), ``running``, ``completed`` (code 0), ``failed`` (other
    codes) or ``killed`` (by a signal)."""
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    started_at: float
    ended_at: float | None = None
    output_bytes: int = 0
    command: str | None = None
    """The text that a shell runs, where it is one."""
    session: str | None = None
    """The session in whose shell it runs."""
    incarnation: str


class ProcessRequest(Record):
    """Names a process."""

    process_id: str


class ProcessList(Record):
    """Running processes first, then finished ones, oldest first."""

    processes: list[ProcessInfo]


class OutputRequest(Record):
    """Read a process's output from a cursor.

    `since` of None begins at the start, or with `replay` false at the present end.  With `follow`
    the stream goes on until the process has ended and all is sent.
    """

    process_id: str
    since: str | None = None
    replay: bool = True
    follow: bool = False


class OutputEnd(Record):
    """The end of an output stream."""

    cursor: str
    info: ProcessInfo


class WriteStdinRequest(Record):
    """Write to a process; answered when all bytes are in its pipe."""

    process_id: str
    close: bool = False
    data: bytes = b""


class SignalRequest(Record):
    """Send a signal to a process group, or with `group` false to the process alone."""

    process_id: str
    signal: int = 15
    group: bool = True


class KillAllRequest(Record):
    """End every process that `process.start` started: TERM, then KILL after `grace` seconds."""

    grace: float = 1.0


class KillAllResult(Record):
    """How many were running; answered when all have ended."""

    count: int


class WaitRequest(Record):
    """Wait for the end; the timeout ends the waiting only."""

    process_id: str
    timeout: float | None = None


# --- kernels ----------------------------------------------------------------------------------


class StartKernelRequest(Record):
    """Start an interpreter, or find the living one of this id.

    `argv` of None is the sandbox's own Python kernel; else a Jupyter kernel's command line with
    ``{connection_file}`` in it.  `fresh` ends a living one first.  `lease` is how long the kernel
    holds the sandbox awake after its relay is gone.
    """

    kernel_id: str
    argv: list[str] | None = None
    cwd: str | None = None
    env: dict[str, str | None] = {}  # noqa: RUF012
    lease: float = 43200.0
    fresh: bool = False


class KernelInfo(Record):
    """What is known of a kernel."""

    kernel_id: str
    pid: int
    existing: bool
    """Whether it was running before this call."""
    acked: int
    """Offset in its output up to which a relay has taken everything over."""
    started_at: float
    attached: bool = False
    incarnation: str
    taken: int = 0
    """How many INPUT and CONTROL frames it has been sent by all its relays."""


class KernelRequest(Record):
    """Names a kernel."""

    kernel_id: str


class EndKernelRequest(Record):
    """End a kernel and its process group: TERM, then KILL after `grace` seconds."""

    kernel_id: str
    grace: float = 1.0


class KernelList(Record):
    """Every living kernel."""

    kernels: list[KernelInfo]


# --- terminals --------------------------------------------------------------------------------


class CreateTerminalRequest(Record):
    """Start argv, without a shell in between, on a terminal of its own.

    `argv` of None is the user's shell.  With `session` the living terminal of that session is
    found, if there is one; with `find_ended` also its last one, which has ended.
    """

    argv: list[str] | None = None
    terminal_id: str | None = None
    session: str | None = None
    find_ended: bool = False
    cwd: str | None = None
    env: dict[str, str | None] = {}  # noqa: RUF012
    cols: int = 80
    rows: int = 24
    buffer_size: int = 1 << 20
    """Bytes of output that are kept for exact replay."""


class TerminalInfo(Record):
    """What is known of a terminal."""

    terminal_id: str
    pid: int
    argv: list[str]
    cwd: str
    status: str
    """``running``, ``exited``, or ``error``: it ended for a reason other than its program's."""
    exit_code: int | None = None
    """The code, or 128 plus the signal that ended it."""
    signal: int | None = None
    reason: str | None = None
    """Why it was ended, where that is known: ``memory_limit``, ``terminated``, ``stopped``."""
    error_code: str | None = None
    error_message: str | None = None
    cols: int
    rows: int
    title: str = ""
    session: str | None = None
    created_at: float
    ended_at: float | None = None
    viewers: int = 0
    cursor: str
    """The end of its output."""
    existing: bool = False
    """Whether `terminal.create` found it."""
    incarnation: str


class TerminalRequest(Record):
    """Names a terminal."""

    terminal_id: str


class TerminalList(Record):
    """Living terminals first, then ended ones, oldest first."""

    terminals: list[TerminalInfo]


class TerminalScreen(Record):
    """What a terminal shows now."""

    info: TerminalInfo
    lines: list[str]
    """The rows of the screen, from the top, without trailing blanks."""
    cursor_col: int
    cursor_row: int
    is_cursor_visible: bool = True
    is_alternate: bool = False
    """Whether a full-screen program has the screen to itself."""


class WriteTerminalRequest(Record):
    """Write to a terminal; answered when its program can read all of it."""

    terminal_id: str
    data: bytes = b""


class ResizeTerminalRequest(Record):
    """Set a terminal's size; holds until a viewer decides otherwise."""

    terminal_id: str
    cols: int
    rows: int


class TerminateTerminalRequest(Record):
    """End a terminal and all that was started in it: HUP, TERM at half of `grace`, then KILL."""

    terminal_id: str
    grace: float = 1.0


class TerminalOutputRequest(Record):
    """Read a terminal's output from a cursor.

    `since` of None begins with the oldest output kept, or with `replay` false at the present end.
    With `follow` the stream goes on until the terminal has ended and all is sent.
    """

    terminal_id: str
    since: str | None = None
    replay: bool = True
    follow: bool = False


class TerminalOutputEvent(Record):
    """``data``: bytes; ``truncated``: some are no longer held; ``terminal``: it has ended.

    `cursor` names the position after the event.  `state` is that of the terminal at its end.
    """

    type: str
    cursor: str
    timestamp: float
    state: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    data: bytes | None = None


class TerminalOutputEnd(Record):
    """The end of an output stream."""

    cursor: str
    info: TerminalInfo


class ConnectTerminalRequest(Record):
    """View a terminal, from a cursor or anew, and maybe give it a size.

    A viewer that `acknowledges` says how far it has drawn.  One that cannot keep its answers to
    replayed queries to itself has them taken out with `strip_queries`.
    """

    terminal_id: str
    cursor: str | None = None
    cols: int | None = None
    rows: int | None = None
    acknowledges: bool = False
    strip_queries: bool = False


_ROWS = (
    Operation("runtime.health", Kind.CALL, Empty, Health, idempotent=True),
    Operation("runtime.configure", Kind.CALL, ConfigureRequest, Empty, idempotent=True),
    Operation("runtime.shutdown", Kind.CALL, ShutdownRequest, Empty, idempotent=True),
    Operation("exec", Kind.STREAM, ExecRequest, ExecResult, event=OutputEvent),
    Operation("process.start", Kind.CALL, StartProcessRequest, ProcessInfo),
    Operation("process.get", Kind.CALL, ProcessRequest, ProcessInfo, idempotent=True),
    Operation("process.list", Kind.CALL, Empty, ProcessList, idempotent=True),
    Operation(
        "process.output",
        Kind.STREAM,
        OutputRequest,
        OutputEnd,
        event=OutputEvent,
        idempotent=True,
    ),
    Operation("process.write_stdin", Kind.CALL, WriteStdinRequest, Empty),
    Operation("process.signal", Kind.CALL, SignalRequest, Empty),
    Operation("process.kill_all", Kind.CALL, KillAllRequest, KillAllResult, idempotent=True),
    Operation("process.wait", Kind.CALL, WaitRequest, ProcessInfo, idempotent=True),
    Operation("kernel.start", Kind.CALL, StartKernelRequest, KernelInfo),
    Operation("kernel.connect", Kind.CHANNEL, KernelRequest, KernelInfo),
    Operation("kernel.list", Kind.CALL, Empty, KernelList, idempotent=True),
    Operation("kernel.end", Kind.CALL, EndKernelRequest, Empty, idempotent=True),
    Operation("terminal.create", Kind.CALL, CreateTerminalRequest, TerminalInfo),
    Operation("terminal.get", Kind.CALL, TerminalRequest, TerminalInfo, idempotent=True),
    Operation("terminal.list", Kind.CALL, Empty, TerminalList, idempotent=True),
    Operation("terminal.snapshot", Kind.CALL, TerminalRequest, TerminalScreen, idempotent=True),
    Operation("terminal.write", Kind.CALL, WriteTerminalRequest, Empty),
    Operation("terminal.resize", Kind.CALL, ResizeTerminalRequest, Empty, idempotent=True),
    Operation("terminal.interrupt", Kind.CALL, TerminalRequest, Empty),
    Operation(
        "terminal.terminate", Kind.CALL, TerminateTerminalRequest, TerminalInfo, idempotent=True
    ),
    Operation("terminal.wait", Kind.CALL, TerminalRequest, TerminalInfo, idempotent=True),
    Operation(
        "terminal.output",
        Kind.STREAM,
        TerminalOutputRequest,
        TerminalOutputEnd,
        event=TerminalOutputEvent,
        idempotent=True,
    ),
    Operation("terminal.connect", Kind.CHANNEL, ConnectTerminalRequest, TerminalInfo),
)


class Table:
    """The operations by their names on the wire; iterating over it gives every name.

    Families of operations that not every sandbox needs are declared in modules of their own, which
    are loaded when one of their operations is looked up.

    Parameters
    ----------
    rows : iterable of Operation
        Those that are always there.
    families : mapping of str to str
        Module by the part of the name before its dot; each has its rows in ``ROWS``.
    """

    def __init__(self, rows: Iterable[Operation], families: Mapping[str, str]) -> None:
        self._rows = {row.name: row for row in rows}
        self._families = dict(families)

    def get(self, name: str) -> Operation | None:
        """Return an operation, or None if there is none of this name."""
        family = name.partition(".")[0]
        if family in self._families:
            self._load(family)
        return self._rows.get(name)

    def __getitem__(self, name: str) -> Operation:
        row = self.get(name)
        if row is None:
            raise KeyError(name)
        return row

    def __iter__(self) -> Iterator[str]:
        for family in list(self._families):
            self._load(family)
        return iter(self._rows)

    def values(self) -> list[Operation]:
        """Return every operation."""
        return [self._rows[name] for name in self]

    def _load(self, family: str) -> None:
        module = __import__(self._families[family], fromlist=["ROWS"])
        self._rows.update({row.name: row for row in module.ROWS})
        del self._families[family]


OPERATIONS = Table(
    _ROWS,
    families={
        "file": "sandbox_kernel.wire.file_operations",
        "git": "sandbox_kernel.wire.git_operations",
        "pool": "sandbox_kernel.wire.pool_operations",
        "port": "sandbox_kernel.wire.port_operations",
        "session": "sandbox_kernel.wire.session_operations",
    },
)
"""Every operation by its name on the wire."""
