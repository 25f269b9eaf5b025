"""A session of a sandbox: a shell that keeps its state from one command to the next."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar, cast

from sandbox_kernel.arguments import environment
from sandbox_kernel.client.command_operations import CommandOperations
from sandbox_kernel.client.commands import Commands
from sandbox_kernel.client.git import GitOperations
from sandbox_kernel.errors import (
    SessionNotFoundError,
    StaleProcessHandleError,
    StaleTerminalHandleError,
)
from sandbox_kernel.wire.session_operations import SessionInfo, SessionRequest, SetEnvRequest

if TYPE_CHECKING:
    from sandbox_kernel.client.process import Process
    from sandbox_kernel.client.sandbox import Sandbox
    from sandbox_kernel.client.terminal import Terminal
    from sandbox_kernel.client.terminal_socket import Socket, WebSocketHandler
    from sandbox_kernel.transports.base import EventStream, Transport
    from sandbox_kernel.transports.choice import AnyTransport
    from sandbox_kernel.wire.operations import ProcessInfo
    from sandbox_kernel.wire.record import Record

__all__ = ["Session"]

T = TypeVar("T")

_TERMINAL_BUFFER = 1 << 20


class _Bound:
    """A transport to one incarnation only: an operation is refused by any other one."""

    def __init__(self, transport: AnyTransport, incarnation: str) -> None:
        self._transport = transport
        self._incarnation = incarnation

    async def call(self, operation: str, request: Record) -> Record:
        return await self._transport.call(operation, request, incarnation=self._incarnation)

    def stream(self, operation: str, request: Record) -> AbstractAsyncContextManager[EventStream]:
        return self._transport.stream(operation, request, incarnation=self._incarnation)


class _Container:
    """The sandbox, for as long as it is the container that a session was made in."""

    def __init__(self, sandbox: Sandbox, info: SessionInfo) -> None:
        self._sandbox = sandbox
        self._session_id = info.session_id
        self._incarnation = info.incarnation

    async def _taken(self, work: Callable[[Transport], Awaitable[T]]) -> T:
        # Another container may have a session of the same name, which is not meant.
        try:
            return await self._sandbox._taken(  # noqa: SLF001  it is one thing with it
                lambda transport: work(cast("Transport", _Bound(transport, self._incarnation)))
            )
        except (StaleProcessHandleError, StaleTerminalHandleError) as error:
            raise SessionNotFoundError(self._session_id) from error

    def _process(self, info: ProcessInfo) -> Process:
        return self._sandbox._process(info)  # noqa: SLF001  likewise


class Session(CommandOperations, GitOperations):
    """A handle on one session; made by `Sandbox.create_session` and its like.

    The session lives as long as the sandbox's container.  Once that has ended, its commands raise
    `SessionNotFoundError`, also when the next container has a session of the same name.

    Texts run in its own shell; lists of words in the folder and environment that this has after its
    last command, without waiting for one that runs; processes of `start_process` outlive it.

    Its operations on files are the sandbox's; a relative path begins where the session's shell is
    at that moment, after its last command.
    """

    def __init__(self, sandbox: Sandbox, info: SessionInfo) -> None:
        self._sandbox = sandbox
        self._info = info
        self._container = _Container(sandbox, info)
        self._own_commands = Commands(
            self._container,
            session=info.session_id,
            is_whole=True,
            fallback_timeout=sandbox._command_timeout,  # noqa: SLF001  it is one thing with it
        )

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.status}>"

    @property
    def _commands(self) -> Commands:
        return self._own_commands

    @property
    def id(self) -> str:
        """Names the session within its sandbox."""
        return self._info.session_id

    @property
    def status(self) -> str:
        """As of the last answer: ``idle``, ``running``, or ``terminated``: its shell has ended.

        `refresh` asks again.
        """
        return self._info.status

    @property
    def cwd(self) -> str:
        """Where its shell was, as of the last answer, after its last command."""
        return self._info.cwd

    @property
    def pid(self) -> int:
        """The shell's process id as of the last answer; 0 while there is none."""
        return self._info.pid

    @property
    def command_timeout(self) -> float | None:
        """Seconds for commands that bring no limit of their own."""
        return self._info.command_timeout

    @property
    def created_at(self) -> float:
        """When it was made, in seconds since the epoch."""
        return self._info.created_at

    async def refresh(self) -> Session:
        """Ask for the present state, and return this handle.  Starts nothing.

        Raises
        ------
        SessionNotFoundError
            It is gone.
        """
        request = SessionRequest(session_id=self.id)
        info = await self._sandbox._asked("session.get", request)  # noqa: SLF001
        found = cast("SessionInfo | None", info)
        if found is None or found.incarnation != self._info.incarnation:
            raise SessionNotFoundError(self.id)
        self._info = found
        return self

    async def create_terminal(
        self,
        argv: Sequence[str | os.PathLike[str]] | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        cols: int = 80,
        rows: int = 24,
        buffer_size: int = _TERMINAL_BUFFER,
        terminal_id: str | None = None,
    ) -> Terminal:
        """Return the session's terminal, or start it in the session's folder and environment.

        Waits for no command that runs; see `Sandbox.create_terminal`.
        """
        await self.refresh()
        return await self._sandbox.create_terminal(
            argv,
            cwd=cwd,
            env=env,
            cols=cols,
            rows=rows,
            buffer_size=buffer_size,
            terminal_id=terminal_id,
            session_id=self.id,
        )

    async def terminal(
        self,
        handler: WebSocketHandler | Socket,
        *,
        cols: int = 80,
        rows: int = 24,
        cursor: str | None = None,
        acknowledged: bool = False,
        start: bool = True,
    ) -> None:
        """Connect a browser's WebSocket to the session's terminal; see `Sandbox.terminal`."""
        await self.refresh()
        await self._sandbox.terminal(
            handler,
            session_id=self.id,
            cols=cols,
            rows=rows,
            cursor=cursor,
            acknowledged=acknowledged,
            start=start,
        )

    async def set_env(self, env: Mapping[str, str | None]) -> None:
        """Set variables of the shell, when it has its turn: all or none; None unsets a name.

        Raises
        ------
        InvalidProcessEnvironmentError
            One of them cannot be set.
        """
        request = SetEnvRequest(session_id=self.id, env=environment(env, may_unset=True))
        await self._container._taken(  # noqa: SLF001  it is one thing with it
            lambda transport: transport.call("session.set_env", request)
        )

    # --- what the operations on files stand on ---

    async def _taken(self, work: Callable[[AnyTransport], Awaitable[T]]) -> T:
        return await self._sandbox._taken(work)  # noqa: SLF001  likewise

    async def _base(self) -> str:
        return (await self.refresh()).cwd

    async def delete(self) -> None:
        """End it with all that was started in its shell; see `Sandbox.delete_session`."""
        await self.refresh()
        await self._sandbox.delete_session(self.id)
