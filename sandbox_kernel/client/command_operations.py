"""What a sandbox and a session do alike: run commands, and start those that go on by themselves."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sandbox_kernel.client.commands import MAX_OUTPUT, CommandInput, Commands

if TYPE_CHECKING:
    from sandbox_kernel.client.process import ExecResult, Process, ProcessExit, ProcessOutput

__all__ = ["CommandOperations"]


class CommandOperations(ABC):
    """The operations that run commands, for a class that has a session to run them in."""

    @property
    @abstractmethod
    def _commands(self) -> Commands:
        """What runs them, and where."""

    async def exec(
        self,
        command: str | Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  travels to the runtime
        stdin: CommandInput | None = None,
        merge_stderr: bool = False,
        max_output: int = MAX_OUTPUT,
        on_output: Callable[[str, bytes], object] | None = None,
    ) -> ExecResult:
        """Run a command to its end and return what it wrote.

        A text runs in the shell of the session (of a sandbox, the default session), which keeps
        what it changes (folder, variables, functions, aliases, background jobs) for the next one;
        one text runs at a time.  A list of words runs at once, beside all others, and no shell
        looks at it.

        Returns when the command itself has ended; what it left in the background goes on.
        Cancelling ends the command with all it has started, and keeps the session.

        Parameters
        ----------
        command : str or sequence of str
            A text for the shell, or program and arguments, of which each is one element: a list is
            not split at blanks.  Words may be `pathlib` paths.
        cwd : str or path, optional
            Folder for this command; by default the session's, or of a list of words the notebook's
            folder or ``/workspace``.  There a relative one begins.
        env : mapping, optional
            Laid over the environment for this command; None unsets a name.
        timeout : float, optional
            Seconds after which the command is ended with all it has started; by default the
            session's limit, or the setting's.  ``math.inf`` for none at all.
        stdin : bytes, str or asynchronous iterable of bytes, optional
            Its whole input; text is sent as UTF-8.  By default it reads end of file at once.  An
            iterable is given up when the command ends before it.
        merge_stderr : bool
            Collect both streams in `ExecResult.stdout`, in the order they were written.
        max_output : int
            Bytes to collect; what comes after is read and dropped, and `ExecResult.truncated` says
            so.
        on_output : callable, optional
            Called with ``"stdout"`` or ``"stderr"`` and bytes as they come; a coroutine function
            is awaited.  Output waits for it, and what it raises ends the command.

        Raises
        ------
        CommandTimeoutError
            The time limit passed; its ``context`` holds the beginning of what was written.
        CommandNotFoundError, CommandPermissionDeniedError, InvalidCommandError
            The command cannot be run.  (A shell tells this by the codes 127 and 126 instead.)
        InvalidProcessCwdError, InvalidProcessEnvironmentError
            The folder or a name in `env` cannot be used.
        SessionTerminatedError
            The text ended the shell (``exit``), or it has ended since; the next one gets a new one.
        SessionBusyError
            The text was not started: too many wait, or its time limit passed before its turn.
        ProcessAbortedError
            The sandbox was stopped, or went to sleep, while the command ran.
        OperationInterruptedError
            The sandbox was killed, or the connection broke, while the command ran.
        ValidationFailedError
            A parameter is of the wrong kind.
        """
        return await self._commands.run(
            command,
            cwd=cwd,
            env=env,
            timeout=timeout,
            stdin=stdin,
            merge_stderr=merge_stderr,
            max_output=max_output,
            on_output=on_output,
        )

    def exec_stream(
        self,
        command: str | Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        stdin: bytes | str | None = None,
        merge_stderr: bool = False,
    ) -> AsyncGenerator[ProcessOutput | ProcessExit, None]:
        """Run a command and iterate over what it writes, from the first byte on.

        Leaving the iteration early ends the command; ``aclose`` the iterator to have that done by
        then.  A consumer that stops taking loses nothing: in the end the command waits.

        Parameters
        ----------
        command, cwd, env, timeout, stdin, merge_stderr
            As for `exec`.

        Yields
        ------
        ProcessOutput or ProcessExit
            The exit comes last, once, also after a time limit (`ProcessExit.timed_out`).

        Raises
        ------
        SandboxError
            As for `exec`, but for `CommandTimeoutError`.
        """
        return self._commands.events(
            command, cwd=cwd, env=env, timeout=timeout, stdin=stdin, merge_stderr=merge_stderr
        )

    async def start_process(
        self,
        command: str | Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  travels to the runtime
        stdin: bool = False,
        merge_stderr: bool = False,
        process_id: str | None = None,
    ) -> Process:
        """Start a command that goes on by itself, and return a handle on it.

        A text gets a shell of its own, in folder and environment of the session (of a sandbox, the
        default session); it holds up no session, and outlives it.  Cancelled, it leaves nothing
        running.

        Parameters
        ----------
        command, cwd, env, merge_stderr
            As for `exec`.
        timeout : float, optional
            Seconds after which it is killed with its process group; none by default.
        stdin : bool
            Whether `Process.write_stdin` will be used; else it reads end of file at once.
        process_id : str, optional
            A name to find it by; by default one is made.  A process that has ended gives its name
            to the next one that asks for it, and is forgotten.

        Raises
        ------
        CommandNotFoundError, CommandPermissionDeniedError, InvalidCommandError
            The command cannot be run.
        ValidationFailedError
            A running process has this name, or a parameter is of the wrong kind.
        """
        return await self._commands.start(
            command,
            cwd=cwd,
            env=env,
            timeout=timeout,
            stdin=stdin,
            merge_stderr=merge_stderr,
            process_id=process_id,
        )
