"""The error tree of the whole project; this module imports nothing of it.

::

    SandboxError
    +-- SandboxConfigurationError        a setting or argument that cannot be honoured
    |   +-- InvalidSandboxIdError
    |   +-- NotebookFolderRefusedError
    |   +-- LimitNotEnforceableError
    +-- EngineError                      the isolation engine
    |   +-- EngineUnavailableError
    |   +-- EngineStartError
    +-- SandboxStateError                what the manager keeps on disk
    |   +-- StorageError
    |   +-- StorageFullError
    |   +-- SandboxBusyError
    |   +-- SandboxExistsError
    |   +-- SandboxNotRunningError
    |   +-- SandboxRunningError
    +-- SandboxNotFoundError
    +-- ContainerUnavailableError        no sandbox answers at the address
    +-- TransportError                   the connection or what travels on it
    |   +-- OperationInterruptedError
    |   +-- ControlProtocolIncompatibleError
    |   +-- UnauthorizedError
    |   +-- ProtocolViolationError
    +-- OperationError                   one operation was refused or failed
        +-- ValidationFailedError
        +-- InvalidCommandError
        |   +-- InvalidProcessCwdError
        |   +-- InvalidProcessEnvironmentError
        +-- CommandNotFoundError
        +-- CommandPermissionDeniedError
        +-- ProcessSpawnFailedError
        +-- ProcessNotFoundError
        +-- StaleProcessHandleError
        +-- InvalidProcessCursorError
        +-- ProcessWaitTimeoutError
        +-- ProcessExitedBeforeLogError
        +-- CommandTimeoutError
        +-- ProcessAbortedError
        +-- StdinClosedError
        +-- SessionNotFoundError
        +-- SessionAlreadyExistsError
        +-- SessionBusyError
        +-- SessionTerminatedError
        +-- SessionDestroyedError
        +-- KernelNotFoundError
        +-- KernelSupersededError
        +-- PortError                    a port of the sandbox, and what listens on it
        |   +-- InvalidPortError
        |   +-- ServiceNotRespondingError
        |   +-- ProcessReadyTimeoutError
        |   +-- ProcessExitedBeforeReadyError
        |   +-- InvalidPortTokenError
        |   +-- PreviewTokenError
        |   +-- StalePreviewUrlError
        |   +-- PreviewAnswerError
        |   +-- PreviewTimeoutError
        +-- TerminalNotFoundError
        +-- StaleTerminalHandleError
        +-- InvalidTerminalCwdError
        +-- InvalidTerminalCursorError
        +-- TerminalControlError
        +-- TerminalWaitTimeoutError
        +-- FileSystemError              a file or folder in the sandbox
        |   +-- PathNotFoundError
        |   +-- PathExistsError
        |   +-- PathBusyError
        |   +-- PermissionDeniedError
        |   +-- ReadOnlyError
        |   +-- PathIsDirectoryError
        |   +-- PathNotDirectoryError
        |   +-- PathTooLongError
        |   +-- FileTooLargeError
        |   +-- NoSpaceError
        |   +-- TooManyFilesError
        |   +-- TooManyLinksError
        |   +-- HostileNameError
        |   +-- UploadNotFoundError
        |   +-- WatchStartError
        +-- GitError
            +-- InvalidGitUrlError
            +-- GitRepositoryNotFoundError
            +-- GitBranchNotFoundError
            +-- GitAuthenticationError
            +-- GitNetworkError
            +-- GitCloneError
            +-- GitCheckoutError

Every class has a stable ``code`` that travels on the wire; an unknown code of a newer peer becomes
`SandboxError` with that code kept.  The codes and HTTP statuses follow the Sandbox SDK's table.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Self

__all__ = [
    "CommandNotFoundError",
    "CommandPermissionDeniedError",
    "CommandTimeoutError",
    "ContainerUnavailableError",
    "ControlProtocolIncompatibleError",
    "EngineError",
    "EngineStartError",
    "EngineUnavailableError",
    "FileSystemError",
    "FileTooLargeError",
    "GitAuthenticationError",
    "GitBranchNotFoundError",
    "GitCheckoutError",
    "GitCloneError",
    "GitError",
    "GitNetworkError",
    "GitRepositoryNotFoundError",
    "HostileNameError",
    "InvalidCommandError",
    "InvalidGitUrlError",
    "InvalidPortError",
    "InvalidPortTokenError",
    "InvalidProcessCursorError",
    "InvalidProcessCwdError",
    "InvalidProcessEnvironmentError",
    "InvalidSandboxIdError",
    "InvalidTerminalCursorError",
    "InvalidTerminalCwdError",
    "KernelNotFoundError",
    "KernelSupersededError",
    "LimitNotEnforceableError",
    "NoSpaceError",
    "NotebookFolderRefusedError",
    "OperationError",
    "OperationInterruptedError",
    "PathBusyError",
    "PathExistsError",
    "PathIsDirectoryError",
    "PathNotDirectoryError",
    "PathNotFoundError",
    "PathTooLongError",
    "PermissionDeniedError",
    "PortError",
    "PreviewAnswerError",
    "PreviewTimeoutError",
    "PreviewTokenError",
    "ProcessAbortedError",
    "ProcessExitedBeforeLogError",
    "ProcessExitedBeforeReadyError",
    "ProcessNotFoundError",
    "ProcessReadyTimeoutError",
    "ProcessSpawnFailedError",
    "ProcessWaitTimeoutError",
    "ProtocolViolationError",
    "ReadOnlyError",
    "SandboxBusyError",
    "SandboxConfigurationError",
    "SandboxError",
    "SandboxExistsError",
    "SandboxNotFoundError",
    "SandboxNotRunningError",
    "SandboxRunningError",
    "SandboxStateError",
    "ServiceNotRespondingError",
    "SessionAlreadyExistsError",
    "SessionBusyError",
    "SessionDestroyedError",
    "SessionNotFoundError",
    "SessionTerminatedError",
    "StalePreviewUrlError",
    "StaleProcessHandleError",
    "StaleTerminalHandleError",
    "StdinClosedError",
    "StorageError",
    "StorageFullError",
    "TerminalControlError",
    "TerminalNotFoundError",
    "TerminalWaitTimeoutError",
    "TooManyFilesError",
    "TooManyLinksError",
    "TransportError",
    "UnauthorizedError",
    "UploadNotFoundError",
    "ValidationFailedError",
    "WatchStartError",
]

_BY_CODE: dict[str, type[SandboxError]] = {}


class SandboxError(Exception):
    """Root of every error this project raises.

    Parameters
    ----------
    message : str
        What failed, with the values that matter.
    hint : str
        What to do now; empty when there is nothing to add.
    context : mapping, optional
        The facts as JSON values, for programs.

    Attributes
    ----------
    code : str
        Stable, machine readable, the same on every transport.
    http_status : int
        The status a REST answer carries.
    """

    code: str = "UNKNOWN_ERROR"
    http_status: int = 500

    def __init__(
        self, message: str, *, hint: str = "", context: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context: dict[str, Any] = dict(context or {})

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" in cls.__dict__ and _BY_CODE.setdefault(cls.code, cls) is not cls:
            # What a peer sends is the code alone: it must lead back to the one class.
            raise TypeError(f"{cls.code} is the code of {_BY_CODE[cls.code].__name__} already")

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message

    def to_wire(self) -> dict[str, Any]:
        """Return the error as the JSON object every transport sends."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "context": self.context,
        }

    @staticmethod
    def from_wire(value: Mapping[str, Any]) -> SandboxError:
        """Build the error a peer sent; tolerant, since the peer may be newer or hostile."""
        code = str(value.get("code", "UNKNOWN_ERROR"))[:80]
        cls = _BY_CODE.get(code, SandboxError)
        error = cls._restore(
            str(value.get("message", ""))[:4000] or code,
            str(value.get("hint", ""))[:4000],
            value.get("context"),
        )
        error.code = code
        return error

    @classmethod
    def _restore(cls, message: str, hint: str, context: object) -> Self:
        # Subclasses take facts and build the sentence; here the sentence is already made.
        error = cls.__new__(cls)
        SandboxError.__init__(
            error, message, hint=hint, context=context if isinstance(context, dict) else None
        )
        return error


_BY_CODE[SandboxError.code] = SandboxError


# --- settings and arguments -------------------------------------------------------------------


class SandboxConfigurationError(SandboxError):
    """A setting or argument cannot be honoured; nothing was started."""

    code = "INVALID_CONFIGURATION"
    http_status = 400


class InvalidSandboxIdError(SandboxConfigurationError):
    """The sandbox id breaks one of the id rules (length, hyphens, characters, reserved words)."""

    code = "INVALID_SANDBOX_ID"

    def __init__(self, sandbox_id: str, rule: str, *, code: str = "INVALID_SANDBOX_ID") -> None:
        super().__init__(
            f"{sandbox_id[:80]!r} is not a sandbox id: {rule}.",
            hint="Use 1 to 63 lower-case letters, digits and inner hyphens, such as 'my-sandbox'.",
            context={"sandbox_id": sandbox_id[:80], "rule": rule},
        )
        self.code = code


# Which of the rules was broken; a caller acts on all of them in the same way.
for _code in ("INVALID_SANDBOX_ID_LENGTH", "INVALID_SANDBOX_ID_HYPHENS", "RESERVED_SANDBOX_ID"):
    _BY_CODE[_code] = InvalidSandboxIdError


class NotebookFolderRefusedError(SandboxConfigurationError):
    """The notebook's folder may not be shared with a sandbox."""

    code = "NOTEBOOK_FOLDER_REFUSED"

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(
            f"Folder {folder} is not shared with the sandbox: {reason}.",
            hint=(
                "Name another folder, such as one of the notebook's own, or share none: "
                "notebook_folder=None in Python, c.SandboxManager.notebook_folder = 'none' for all."
            ),
            context={"folder": folder, "reason": reason},
        )


class LimitNotEnforceableError(SandboxConfigurationError):
    """A limit was asked for that the engine cannot enforce here."""

    code = "LIMIT_NOT_ENFORCEABLE"

    def __init__(self, limit: str, engine: str, reached: str, reason: str) -> None:
        super().__init__(
            f"The {engine} engine cannot enforce the limit {limit!r} here"
            f" (reached: {reached}): {reason}.",
            hint=f"Leave {limit!r} out, or accept less with accept_weaker_limits = True.",
            context={"limit": limit, "engine": engine, "reached": reached},
        )


# --- engines ----------------------------------------------------------------------------------


class EngineError(SandboxError):
    """The isolation engine failed."""

    code = "ENGINE_ERROR"
    http_status = 503


class EngineUnavailableError(EngineError):
    """No engine can isolate on this machine; names the missing permission and its mend."""

    code = "ENGINE_UNAVAILABLE"

    def __init__(self, engine: str, cause: str, mend: str) -> None:
        super().__init__(
            f"The {engine} engine cannot run here: {cause}.",
            hint=mend,
            context={"engine": engine, "cause": cause},
        )


class EngineStartError(EngineError):
    """The engine started, but no sandbox came of it; holds the last log lines."""

    code = "SANDBOX_START_FAILED"

    def __init__(self, engine: str, sandbox_id: str, reason: str, log_tail: str = "") -> None:
        super().__init__(
            f"Sandbox {sandbox_id!r} did not start on the {engine} engine: {reason}."
            + (f"\nLast log lines:\n{log_tail}" if log_tail else ""),
            hint="Run 'jupyter sandbox doctor' to see what this machine lacks.",
            context={"engine": engine, "sandbox_id": sandbox_id, "reason": reason},
        )


# --- what the manager keeps on disk -----------------------------------------------------------


class SandboxStateError(SandboxError):
    """The manager's own files cannot be used."""

    code = "SANDBOX_STATE_ERROR"


class StorageError(SandboxStateError):
    """A file or folder of the manager cannot be read or written."""

    code = "STORAGE_ERROR"

    def __init__(self, path: str, action: str, reason: str, mend: str = "") -> None:
        super().__init__(
            f"Cannot {action} {path}: {reason}.",
            hint=mend or "Check its owner and permissions, or point JUPYTER_DATA_DIR elsewhere.",
            context={"path": path, "action": action, "reason": reason},
        )


class StorageFullError(SandboxStateError):
    """The disk or quota behind the manager's files is full; nothing was half written."""

    code = "STORAGE_FULL"
    http_status = 507

    def __init__(self, path: str, action: str) -> None:
        super().__init__(
            f"Cannot {action} {path}: no space is left on its disk.",
            hint="Free space there ('jupyter sandbox destroy ID'), then try again.",
            context={"path": path, "action": action},
        )


class SandboxBusyError(SandboxStateError):
    """Another process holds the sandbox's lock for longer than the wait allowed."""

    code = "SANDBOX_BUSY"
    http_status = 409

    def __init__(self, sandbox_id: str, waited: float) -> None:
        super().__init__(
            f"Sandbox {sandbox_id!r} is being started or stopped by another process"
            f" (waited {waited:.0f} s).",
            hint="Try again when that has ended.",
            context={"sandbox_id": sandbox_id},
        )


class SandboxExistsError(SandboxStateError):
    """A sandbox of this id is there, and is not what was asked for; it stays as it is."""

    code = "SANDBOX_EXISTS"
    http_status = 409

    def __init__(self, sandbox_id: str, differing: Iterable[str]) -> None:
        names = sorted(differing)
        super().__init__(
            f"Sandbox {sandbox_id!r} exists, with other values of: {', '.join(names)}.",
            hint="Change it by configure(), use another id, or destroy it first.",
            context={"sandbox_id": sandbox_id, "differing": names},
        )


class SandboxNotRunningError(SandboxStateError):
    """What was asked for looks into a running sandbox, and this one does not run."""

    code = "SANDBOX_NOT_RUNNING"
    http_status = 409

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(
            f"Sandbox {sandbox_id!r} does not run.",
            hint="Start it first; looking starts nothing.",
            context={"sandbox_id": sandbox_id},
        )


class SandboxRunningError(SandboxStateError):
    """What was asked for can only be done to a stopped sandbox."""

    code = "SANDBOX_RUNNING"
    http_status = 409

    def __init__(self, sandbox_id: str, action: str) -> None:
        super().__init__(
            f"Cannot {action} of sandbox {sandbox_id!r} while it runs.",
            hint=f"Stop it first: 'jupyter sandbox stop {sandbox_id}'.",
            context={"sandbox_id": sandbox_id, "action": action},
        )


class SandboxNotFoundError(SandboxError):
    """No sandbox of this id is known."""

    code = "SANDBOX_NOT_FOUND"
    http_status = 404

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(
            f"No sandbox {sandbox_id!r} exists.",
            hint="'jupyter sandbox list' shows those that do.",
            context={"sandbox_id": sandbox_id},
        )


class ContainerUnavailableError(SandboxError):
    """The sandbox is stopped, or its runtime does not answer at its address."""

    code = "CONTAINER_UNAVAILABLE"
    http_status = 503

    def __init__(self, sandbox_id: str, reason: str) -> None:
        states = {
            "it has stopped": "is stopped",
            "it is stopping": "is stopping",
            "it goes to sleep": "goes to sleep",
        }
        super().__init__(
            f"Sandbox {sandbox_id!r} {states.get(reason, f'does not answer: {reason}')}.",
            hint="The next operation starts it again; files in its workspace are kept.",
            context={"sandbox_id": sandbox_id, "reason": reason},
        )


# --- connection -------------------------------------------------------------------------------


class TransportError(SandboxError):
    """The connection to the runtime failed, or what came over it made no sense."""

    code = "RPC_TRANSPORT_ERROR"
    http_status = 503


class OperationInterruptedError(TransportError):
    """The connection broke while the call was under way; it is never repeated by itself."""

    code = "OPERATION_INTERRUPTED"
    http_status = 409

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(
            f"The connection broke during {operation}: {reason}.",
            hint="Whether it took effect is unknown; look before you repeat it.",
            context={"operation": operation},
        )


class ControlProtocolIncompatibleError(TransportError):
    """The two ends share no protocol version."""

    code = "CONTROL_PROTOCOL_INCOMPATIBLE"

    def __init__(self, ours: Iterable[int], theirs: Iterable[int]) -> None:
        mine, other = list(ours), list(theirs)
        super().__init__(
            f"This side speaks protocol versions {mine}, the other side {other}.",
            hint="Stop the sandbox, so that it starts again with the installed version.",
            context={"ours": mine, "theirs": other},
        )


class UnauthorizedError(TransportError):
    """The incarnation token is missing or wrong."""

    code = "UNAUTHORIZED"
    http_status = 401

    def __init__(self) -> None:
        super().__init__(
            "The incarnation token is missing or wrong.",
            hint="Look the sandbox up again; the token changes at each start.",
        )


class ProtocolViolationError(TransportError):
    """The peer sent what the protocol forbids; the connection is closed."""

    code = "PROTOCOL_VIOLATION"
    http_status = 502

    def __init__(self, what: str) -> None:
        super().__init__(f"Protocol violation: {what}.", context={"what": what})


# --- operations -------------------------------------------------------------------------------


class OperationError(SandboxError):
    """One operation was refused or failed; the connection and the sandbox are fine."""

    code = "INTERNAL_ERROR"


class ValidationFailedError(OperationError):
    """A parameter has the wrong type or lies out of range."""

    code = "VALIDATION_FAILED"
    http_status = 400

    def __init__(self, parameter: str, problem: str, *, hint: str = "") -> None:
        super().__init__(
            f"Parameter {parameter!r} {problem}.",
            hint=hint,
            context={"parameter": parameter, "problem": problem},
        )


class InvalidCommandError(OperationError):
    """The argument vector is empty, has an empty program name, or holds a NUL."""

    code = "INVALID_COMMAND"
    http_status = 400

    def __init__(self, problem: str, *, hint: str = "") -> None:
        super().__init__(
            f"The command cannot be run: {problem}.",
            hint=hint or 'Pass a list of strings, such as ["python", "script.py"].',
            context={"problem": problem},
        )


class InvalidProcessCwdError(InvalidCommandError):
    """The working directory does not exist or is no directory."""

    code = "INVALID_PROCESS_CWD"

    def __init__(self, cwd: str, problem: str) -> None:
        OperationError.__init__(
            self,
            f"The working directory {cwd!r} {problem}.",
            hint="Create it in the sandbox first, or leave cwd out to use /workspace.",
            context={"cwd": cwd, "problem": problem},
        )


class InvalidProcessEnvironmentError(InvalidCommandError):
    """An environment name or value cannot be passed to a program."""

    code = "INVALID_PROCESS_ENVIRONMENT"

    def __init__(self, name: str, problem: str) -> None:
        OperationError.__init__(
            self,
            f"The environment variable {name[:80]!r} {problem}.",
            context={"name": name[:80], "problem": problem},
        )


class CommandNotFoundError(OperationError):
    """No such program in the sandbox (shells report 127)."""

    code = "COMMAND_NOT_FOUND"
    http_status = 404

    def __init__(self, program: str, detail: str = "") -> None:
        super().__init__(
            f"No program {program!r} in the sandbox{': ' + detail if detail else ''}.",
            hint=(
                f"A word of a list is not split: pass {program.split()!r}, or a text for the shell."
                if " " in program.strip() and "/" not in program.split(maxsplit=1)[0]
                else "Check the spelling, or install it in the sandbox."
            ),
            context={"program": program},
        )


class CommandPermissionDeniedError(OperationError):
    """The file exists but may not be executed (shells report 126)."""

    code = "COMMAND_PERMISSION_DENIED"
    http_status = 403

    def __init__(self, program: str) -> None:
        super().__init__(
            f"{program!r} may not be executed in the sandbox.",
            hint="Make it executable (chmod +x), or run it through its interpreter.",
            context={"program": program},
        )


class ProcessSpawnFailedError(OperationError):
    """The system refused to start the program."""

    code = "PROCESS_SPAWN_FAILED"

    def __init__(self, program: str, reason: str, hint: str = "") -> None:
        super().__init__(
            f"{program!r} could not be started: {reason}.",
            hint=hint,
            context={"program": program, "reason": reason},
        )


class ProcessNotFoundError(OperationError):
    """No process of this id in the present container."""

    code = "PROCESS_NOT_FOUND"
    http_status = 404

    def __init__(self, process_id: str) -> None:
        super().__init__(
            f"No process {process_id[:80]!r} in this container.",
            hint="list_processes() shows those that are known.",
            context={"process_id": process_id[:80]},
        )


class StaleProcessHandleError(OperationError):
    """The handle belongs to an earlier container of the sandbox."""

    code = "STALE_PROCESS_HANDLE"
    http_status = 409

    def __init__(self, process_id: str) -> None:
        super().__init__(
            f"Process {process_id[:80]!r} belongs to an earlier container of this sandbox.",
            hint="Start a new one with start_process().",
            context={"process_id": process_id[:80]},
        )


class InvalidProcessCursorError(OperationError):
    """The cursor is no cursor of this process."""

    code = "INVALID_PROCESS_CURSOR"
    http_status = 400

    def __init__(self, process_id: str) -> None:
        super().__init__(
            f"The cursor does not belong to process {process_id[:80]!r}.",
            hint="Pass a cursor that an event of this process carried, or none for the beginning.",
            context={"process_id": process_id[:80]},
        )


class ProcessWaitTimeoutError(OperationError):
    """The wait ended; the process runs on."""

    code = "PROCESS_WAIT_TIMEOUT"
    http_status = 408

    def __init__(self, process_id: str, timeout: float, pattern: str | None = None) -> None:
        context: dict[str, Any] = {"process_id": process_id[:80], "timeout": timeout}
        missing, hint = "ended", "Wait again, or end it with kill()."
        if pattern is not None:
            context["pattern"] = pattern[:200]
            missing = f"written {pattern[:200]!r}"
            hint = "logs() has what it wrote; wait again, or end it with kill()."
        super().__init__(
            f"Process {process_id[:80]!r} had not {missing} after {timeout:g} s; it runs on.",
            hint=hint,
            context=context,
        )


class ProcessExitedBeforeLogError(OperationError):
    """The process ended, and the pattern waited for was not in what it wrote."""

    code = "PROCESS_EXITED_BEFORE_LOG"
    http_status = 409

    def __init__(self, process_id: str, pattern: str, exit_code: int) -> None:
        super().__init__(
            f"Process {process_id[:80]!r} ended with code {exit_code} and had not written "
            f"{pattern[:200]!r}.",
            hint="logs() has what it wrote.",
            context={
                "process_id": process_id[:80],
                "pattern": pattern[:200],
                "exit_code": exit_code,
            },
        )


class CommandTimeoutError(OperationError):
    """exec's time limit passed; the command and its process group were killed.

    ``context`` holds what was written until then: ``stdout`` and ``stderr`` (text, replaced where
    not UTF-8), at most 64 KiB of each.
    """

    code = "COMMAND_TIMEOUT"
    http_status = 408

    def __init__(self, program: str, timeout: float, stdout: str = "", stderr: str = "") -> None:
        super().__init__(
            f"{program!r} was killed after its time limit of {timeout:g} s.",
            hint="Raise timeout, or use start_process() for work without a limit.",
            context={"program": program, "timeout": timeout, "stdout": stdout, "stderr": stderr},
        )


class ProcessAbortedError(OperationError):
    """The process was ended because its sandbox stopped."""

    code = "PROCESS_ABORTED"
    http_status = 499

    def __init__(self, process_id: str) -> None:
        super().__init__(
            f"Process {process_id[:80]!r} was ended because the sandbox is stopping.",
            context={"process_id": process_id[:80]},
        )


class StdinClosedError(OperationError):
    """The process takes no (more) input."""

    code = "PROCESS_STDIN_CLOSED"
    http_status = 409

    def __init__(self, process_id: str) -> None:
        super().__init__(
            f"Process {process_id[:80]!r} takes no input: its stdin is closed.",
            hint="Start it with stdin=True to write to it.",
            context={"process_id": process_id[:80]},
        )


class SessionNotFoundError(OperationError):
    """No session of this id in the present container."""

    code = "SESSION_NOT_FOUND"
    http_status = 404

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"No session {session_id[:80]!r} in this container.",
            hint="Sessions end with their container; make it with create_session().",
            context={"session_id": session_id[:80]},
        )


class SessionAlreadyExistsError(OperationError):
    """A session of this id lives already."""

    code = "SESSION_ALREADY_EXISTS"
    http_status = 409

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"Session {session_id[:80]!r} exists already.",
            hint="Use get_session(), or delete it first.",
            context={"session_id": session_id[:80]},
        )


class SessionBusyError(OperationError):
    """Other commands hold the session; this one was not started."""

    code = "SESSION_BUSY"
    http_status = 409

    def __init__(self, session_id: str, reason: str) -> None:
        super().__init__(
            f"The command was not started: session {session_id[:80]!r} is busy ({reason}).",
            hint="Repeat it later, use another session, or cancel what runs.",
            context={"session_id": session_id[:80], "reason": reason},
        )


class SessionTerminatedError(OperationError):
    """The session's shell has ended; the next command gets a new one, in the last known folder.

    ``context`` holds the shell's ``exit_code`` and ``signal``, and for the command that ended it
    what was written until then: ``stdout`` and ``stderr`` (text), at most 64 KiB of each.
    """

    code = "SESSION_TERMINATED"
    http_status = 410

    def __init__(
        self, session_id: str, exit_code: int, *, signal: int | None = None, reason: str = ""
    ) -> None:
        how = f"signal {signal}" if signal is not None else f"code {exit_code}"
        super().__init__(
            f"The shell of session {session_id[:80]!r} ended with {how}"
            f"{': ' + reason if reason else ''}; its variables and functions are gone.",
            hint="The next command starts a new shell in the same folder.",
            context={"session_id": session_id[:80], "exit_code": exit_code, "signal": signal},
        )


class SessionDestroyedError(OperationError):
    """The session was deleted while a command ran or waited in it."""

    code = "SESSION_DESTROYED"
    http_status = 410

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"Session {session_id[:80]!r} was deleted while the command ran or waited in it.",
            context={"session_id": session_id[:80]},
        )


class KernelNotFoundError(OperationError):
    """No kernel of this id in the present container."""

    code = "KERNEL_NOT_FOUND"
    http_status = 404

    def __init__(self, kernel_id: str) -> None:
        super().__init__(
            f"No kernel {kernel_id[:80]!r} in this container.",
            context={"kernel_id": kernel_id[:80]},
        )


class KernelSupersededError(OperationError):
    """A newer relay has attached to the kernel; this one must go."""

    code = "KERNEL_SUPERSEDED"
    http_status = 409

    def __init__(self, kernel_id: str) -> None:
        super().__init__(
            f"Another relay has attached to kernel {kernel_id[:80]!r}.",
            context={"kernel_id": kernel_id[:80]},
        )


class PortError(OperationError):
    """A port of the sandbox cannot be used; also when the system refuses, as for want of sockets.

    Parameters
    ----------
    port : int
        The port.
    reason : str
        What is wrong, as the rest of a sentence.
    """

    code = "PORT_OPERATION_ERROR"

    def __init__(self, port: int, reason: str, *, hint: str = "") -> None:
        super().__init__(f"Port {port} of the sandbox {reason}.", hint=hint, context={"port": port})


class InvalidPortError(PortError):
    """No program of a sandbox can be reached at a port of this number."""

    code = "INVALID_PORT"
    http_status = 400

    def __init__(self, port: object, reason: str = "is not a number from 1024 to 65535") -> None:
        shown = str(port)[:40] if isinstance(port, int) else repr(port)[:40]
        OperationError.__init__(
            self,
            f"Port {shown} {reason}.",
            hint=(
                f"Pass the number {port.strip()}, without quotes."
                if isinstance(port, str) and port.strip().isdecimal()
                else "Let the program listen on another one."
            ),
            context={"port": shown},
        )


class ServiceNotRespondingError(PortError):
    """Nothing listens on the port inside, or it takes no connection."""

    code = "SERVICE_NOT_RESPONDING"
    http_status = 502

    def __init__(self, port: int, reason: str) -> None:
        super().__init__(
            port,
            f"cannot be reached: {reason}",
            hint="Start a program that listens on it at 127.0.0.1, and use wait_for_port().",
        )


class ProcessReadyTimeoutError(PortError):
    """The wait for a port ended; what was waited for runs on."""

    code = "PROCESS_READY_TIMEOUT"
    http_status = 408

    def __init__(
        self, port: int, timeout: float, last: str, *, process_id: str | None = None
    ) -> None:
        super().__init__(
            port,
            f"was not ready after {timeout:g} s: {last}",
            hint="Wait again, or look at what the program has written.",
        )
        self.context = {"port": port, "timeout": timeout, "last": last}
        if process_id is not None:
            self.context["process_id"] = process_id[:80]


class ProcessExitedBeforeReadyError(PortError):
    """The process that was to listen on the port has ended."""

    code = "PROCESS_EXITED_BEFORE_READY"

    def __init__(self, port: int, process_id: str, exit_code: int) -> None:
        super().__init__(
            port,
            f"will not be ready: process {process_id[:80]!r} has ended with code {exit_code}",
            hint="Look at what it has written.",
        )
        self.context = {"port": port, "process_id": process_id[:80], "exit_code": exit_code}


class InvalidPortTokenError(PortError):
    """A token that was chosen for a port cannot be it; the one given is not repeated."""

    code = "INVALID_PORT_TOKEN"
    http_status = 400

    def __init__(self, port: int, reason: str) -> None:
        super().__init__(
            port,
            f"cannot have this token: {reason}",
            hint="Choose another one, or none: a random one is made.",
        )


class PreviewTokenError(PortError):
    """The token opens no port: unknown, revoked, of another port, or of a destroyed sandbox."""

    code = "INVALID_TOKEN"
    http_status = 404

    def __init__(self) -> None:
        # One text for all cases: who guesses learns nothing, not even whether the sandbox exists.
        OperationError.__init__(
            self,
            "No port is exposed under this token.",
            hint="expose_port() gives the present one.",
        )


class StalePreviewUrlError(PortError):
    """The token is right, and the sandbox has stopped or started anew since the port was exposed.

    Nothing was started.
    """

    code = "STALE_PREVIEW_URL"
    http_status = 410

    def __init__(self, port: int) -> None:
        super().__init__(
            port,
            "was exposed by an earlier container",
            hint="Start the program again and call expose_port(); the token stays the same.",
        )


class PreviewAnswerError(PortError):
    """The program behind a preview gave no answer that can be passed on."""

    code = "INVALID_PREVIEW_ANSWER"
    http_status = 502

    def __init__(self, port: int, reason: str) -> None:
        super().__init__(
            port,
            f"has a program that {reason}",
            hint="See what the program has written; it must speak HTTP/1.",
        )


class PreviewTimeoutError(PortError):
    """The program behind a preview has begun no answer in the time it has."""

    code = "PREVIEW_TIMEOUT"
    http_status = 504

    def __init__(self, port: int, timeout: float) -> None:
        super().__init__(
            port,
            f"has a program that began no answer in {timeout:g} s",
            hint="See whether it is busy; SandboxPreview.answer_timeout gives it more time.",
        )


class TerminalNotFoundError(OperationError):
    """No terminal of this id in the present container."""

    code = "TERMINAL_NOT_FOUND"
    http_status = 404

    def __init__(self, terminal_id: str) -> None:
        super().__init__(
            f"No terminal {terminal_id[:80]!r} in this container.",
            hint="list_terminals() shows those that are known.",
            context={"terminal_id": terminal_id[:80]},
        )


class StaleTerminalHandleError(OperationError):
    """The handle belongs to an earlier container of the sandbox."""

    code = "STALE_TERMINAL_HANDLE"
    http_status = 409

    def __init__(self, terminal_id: str) -> None:
        super().__init__(
            f"Terminal {terminal_id[:80]!r} belongs to an earlier container of this sandbox.",
            hint="Create a new one with create_terminal().",
            context={"terminal_id": terminal_id[:80]},
        )


class InvalidTerminalCwdError(OperationError):
    """The working directory of a new terminal does not exist or is no directory."""

    code = "INVALID_TERMINAL_CWD"
    http_status = 400

    def __init__(self, cwd: str, problem: str) -> None:
        super().__init__(
            f"The working directory {cwd!r} {problem}.",
            hint="Create it in the sandbox first, or leave cwd out to use /workspace.",
            context={"cwd": cwd, "problem": problem},
        )


class InvalidTerminalCursorError(OperationError):
    """The cursor is no cursor of this terminal: malformed, of another one, or from the future."""

    code = "INVALID_TERMINAL_CURSOR"
    http_status = 400

    def __init__(self, terminal_id: str, problem: str = "does not belong to it") -> None:
        super().__init__(
            f"The cursor given for terminal {terminal_id[:80]!r} {problem}.",
            hint="Pass a cursor that an event of this terminal carried, or none.",
            context={"terminal_id": terminal_id[:80], "problem": problem},
        )


class TerminalControlError(OperationError):
    """A terminal could not be written to, resized, interrupted or ended."""

    code = "TERMINAL_CONTROL_ERROR"

    def __init__(self, terminal_id: str, action: str, reason: str) -> None:
        super().__init__(
            f"Cannot {action} terminal {terminal_id[:80]!r}: {reason}.",
            hint="If it has ended, create a new one with create_terminal(); its output can still"
            " be read.",
            context={"terminal_id": terminal_id[:80], "action": action, "reason": reason},
        )


class TerminalWaitTimeoutError(OperationError):
    """The wait ended; the terminal goes on."""

    code = "TERMINAL_WAIT_TIMEOUT"
    http_status = 408

    def __init__(self, terminal_id: str, timeout: float) -> None:
        super().__init__(
            f"Terminal {terminal_id[:80]!r} had not ended after {timeout:g} s; it goes on.",
            hint="Wait again, or end it with terminate().",
            context={"terminal_id": terminal_id[:80], "timeout": timeout},
        )


# --- files ------------------------------------------------------------------------------------


class FileSystemError(OperationError):
    """A file or folder in the sandbox could not be used; one of its kinds where that is known.

    ``context`` holds ``path``, ``action`` and ``reason``.
    """

    code = "FILESYSTEM_ERROR"
    _hint = ""

    def __init__(self, path: str, action: str, reason: str, *, hint: str | None = None) -> None:
        shown = path if len(path) <= 300 else f"{path[:300]}..."
        super().__init__(
            f"Cannot {action} {shown!r}: {reason}.",
            hint=self._hint if hint is None else hint,
            context={"path": shown, "action": action, "reason": reason},
        )


class PathNotFoundError(FileSystemError):
    """No such file or folder, or a folder on the way to it does not exist."""

    code = "FILE_NOT_FOUND"
    http_status = 404


class PathExistsError(FileSystemError):
    """Something of this name is there already, or a folder is not empty."""

    code = "FILE_EXISTS"
    http_status = 409


class PathBusyError(FileSystemError):
    """A program holds the file in a way that forbids this now, or it is a mount point."""

    code = "RESOURCE_BUSY"
    http_status = 409


class PermissionDeniedError(FileSystemError):
    """The sandbox's user may not do this."""

    code = "PERMISSION_DENIED"
    http_status = 403


class ReadOnlyError(FileSystemError):
    """The path lies on what is shown to the sandbox read-only."""

    code = "READ_ONLY"
    http_status = 403
    _hint = "Write below /workspace, the home folder or /tmp."


class PathIsDirectoryError(FileSystemError):
    """A folder is where a file is needed."""

    code = "IS_DIRECTORY"
    http_status = 400


class PathNotDirectoryError(FileSystemError):
    """A file is where a folder is needed."""

    code = "NOT_DIRECTORY"
    http_status = 400


class PathTooLongError(FileSystemError):
    """A name is longer than 255 bytes, or a path longer than 4095."""

    code = "NAME_TOO_LONG"
    http_status = 400


class FileTooLargeError(FileSystemError):
    """More bytes or entries than a limit allows: the caller's, or the sandbox's for one file."""

    code = "FILE_TOO_LARGE"
    http_status = 413


class NoSpaceError(FileSystemError):
    """The sandbox's disk or quota is full; what was there before is unchanged."""

    code = "NO_SPACE"
    _hint = "Delete something in the sandbox, then try again."


class TooManyFilesError(FileSystemError):
    """Too many files, uploads or watches are open."""

    code = "TOO_MANY_FILES"


class TooManyLinksError(FileSystemError):
    """Symbolic links lead in a circle, or a file has too many names."""

    code = "TOO_MANY_LINKS"


class HostileNameError(FileSystemError):
    """A sandbox sent a name or link that would lead out of the folder it is written to."""

    code = "HOSTILE_NAME"
    http_status = 502


class UploadNotFoundError(FileSystemError):
    """No upload of this id: it has ended, failed or was given up."""

    code = "UPLOAD_NOT_FOUND"
    http_status = 404

    def __init__(self, upload_id: str) -> None:
        super().__init__(upload_id, "go on with the upload", "it has ended or was given up")


class WatchStartError(FileSystemError):
    """The system refuses to watch a folder."""

    code = "WATCH_START_ERROR"


# --- git --------------------------------------------------------------------------------------


class GitError(OperationError):
    """git failed; credentials are taken out of its words.

    ``context`` holds ``url`` and ``reason``, the end of what git wrote.
    """

    code = "GIT_OPERATION_FAILED"
    _what = "git failed for"
    _hint = ""

    def __init__(self, url: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(
            f"{self._what} {url[:300]!r}: {reason}.",
            hint=self._hint if hint is None else hint,
            context={"url": url[:300], "reason": reason},
        )


class InvalidGitUrlError(GitError):
    """The address is none that may be cloned from."""

    code = "INVALID_GIT_URL"
    http_status = 400
    _what = "Cannot clone from"
    _hint = (
        "Use https://, http://, ssh://, git:// or file://, user@host:path, or the absolute path of "
        "one inside."
    )


class GitRepositoryNotFoundError(GitError):
    """There is no repository at the address, or it is hidden from these credentials."""

    code = "GIT_REPOSITORY_NOT_FOUND"
    http_status = 404
    _what = "No repository at"


class GitBranchNotFoundError(GitError):
    """The repository has no such branch or tag."""

    code = "GIT_BRANCH_NOT_FOUND"
    http_status = 404
    _what = "No such branch in"


class GitAuthenticationError(GitError):
    """The credentials are missing or wrong."""

    code = "GIT_AUTH_FAILED"
    http_status = 401
    _what = "Not admitted to"
    _hint = "Pass username and password (or a token) that may read the repository."


class GitNetworkError(GitError):
    """The host cannot be reached."""

    code = "GIT_NETWORK_ERROR"
    http_status = 502
    _what = "Cannot reach"
    _hint = "A sandbox has no network unless it is made with network=True."


class GitCloneError(GitError):
    """Cloning failed for another reason."""

    code = "GIT_CLONE_FAILED"
    _what = "Cannot clone"


class GitCheckoutError(GitError):
    """The clone came, but its files could not be written."""

    code = "GIT_CHECKOUT_FAILED"
    _what = "Cannot check out"
