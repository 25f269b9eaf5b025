"""A kernel as a test sees it: requests, and all that comes back for them, over any connection."""

from __future__ import annotations

import datetime as dt
import os
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, Self

__all__ = ["KERNEL", "Connection", "Kernel", "Message", "Request", "kinds_of"]

KERNEL = os.environ.get("E2E_KERNEL", "sandbox-python")
"""Kernelspec under test; ``E2E_KERNEL=python3`` shows what a test says about a plain kernel."""

Message = dict[str, Any]
"""header, parent_header, metadata, content, buffers, channel; and `at`, when it arrived."""


class Connection(Protocol):
    """How messages reach a kernel: its own sockets, or a server's WebSocket."""

    session: str

    def send(self, channel: str, message: Message) -> None: ...

    def receive(self, timeout: float) -> list[Message]:
        """Wait at most `timeout` seconds; return what has arrived, in order of arrival."""

    def interrupt(self) -> None:
        """Interrupt as a user's button does."""

    def restart(self) -> None: ...

    def is_alive(self) -> bool: ...

    def close(self) -> None:
        """Shut the kernel down; may be called twice."""


class Request:
    """What a client sent, and what came back for it."""

    def __init__(self, kernel: Kernel, message: Message) -> None:
        self.kernel = kernel
        self.message = message
        self.msg_id: str = message["header"]["msg_id"]
        self.sent_at = time.monotonic()
        self.iopub: list[Message] = []
        self.inputs: list[Message] = []
        self.reply: Message | None = None

    @property
    def is_idle(self) -> bool:
        return any(
            m["header"]["msg_type"] == "status" and m["content"]["execution_state"] == "idle"
            for m in self.iopub
        )

    @property
    def is_done(self) -> bool:
        return self.reply is not None and self.is_idle

    def wait(self, timeout: float = 30.0) -> Request:
        """Wait for reply and idle."""
        self.kernel.wait_until(lambda: self.is_done, timeout, f"the end of {self}")
        return self

    def wait_for(self, msg_type: str, timeout: float = 30.0) -> Message:
        """Wait for the first iopub message of a type."""
        self.kernel.wait_until(lambda: bool(self.of_type(msg_type)), timeout, msg_type)
        return self.of_type(msg_type)[0]

    def wait_for_text(self, text: str, timeout: float = 30.0) -> None:
        self.kernel.wait_until(lambda: text in self.text, timeout, f"{text!r} in {self}")

    def wait_for_input(self, count: int = 1, timeout: float = 30.0) -> Message:
        self.kernel.wait_until(lambda: len(self.inputs) >= count, timeout, "an input request")
        return self.inputs[count - 1]

    def of_type(self, msg_type: str) -> list[Message]:
        return [m for m in self.iopub if m["header"]["msg_type"] == msg_type]

    @property
    def content(self) -> dict[str, Any]:
        """Content of the reply."""
        assert self.reply is not None, f"no reply: {self}"
        return self.reply["content"]

    @property
    def status(self) -> str:
        return str(self.content["status"])

    @property
    def text(self) -> str:
        """All stream text, joined."""
        return "".join(m["content"]["text"] for m in self.of_type("stream"))

    def stream(self, name: str) -> str:
        return "".join(
            m["content"]["text"] for m in self.of_type("stream") if m["content"]["name"] == name
        )

    @property
    def result(self) -> str | None:
        found = self.of_type("execute_result")
        return found[-1]["content"]["data"]["text/plain"] if found else None

    @property
    def displays(self) -> list[dict[str, Any]]:
        return [m["content"]["data"] for m in self.of_type("display_data")]

    @property
    def kinds(self) -> list[str]:
        """Types of the iopub messages, streams that follow each other joined."""
        return kinds_of(self.iopub)

    def __repr__(self) -> str:
        kinds = self.kinds
        shown = kinds if len(kinds) < 12 else [*kinds[:6], f"... {len(kinds)}", *kinds[-4:]]
        reply = self.reply and self.reply["content"].get("status")
        code = str(self.message["content"].get("code", ""))[:60]
        return (
            f"<{self.message['header']['msg_type']} {code!r}: reply {reply}, iopub {shown}, "
            f"text {self.text[-200:]!r}>"
        )


def kinds_of(messages: Iterable[Message]) -> list[str]:
    """Return the types of iopub messages; a status is its state, a stream its name.

    Messages of one stream that follow each other count once: where a stream is cut depends on a
    flush timer.
    """
    kinds: list[str] = []
    for m in messages:
        kind = m["header"]["msg_type"]
        if kind == "status":
            kind = m["content"]["execution_state"]
        elif kind == "stream":
            kind = m["content"]["name"]
            if kinds and kinds[-1] == kind:
                continue
        kinds.append(kind)
    return kinds


class Kernel:
    """A client of one kernel.  Everything received is kept, unasked messages too."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.requests: dict[str, Request] = {}
        self.log: list[Message] = []
        self.strays: list[Message] = []
        self.repeats: list[Message] = []
        """Messages whose id had been received before; a relay's successor may send such."""
        self._seen: set[tuple[str, str]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def request(
        self,
        msg_type: str,
        content: dict[str, Any] | None = None,
        *,
        channel: str = "shell",
        buffers: Sequence[bytes] = (),
        metadata: dict[str, Any] | None = None,
        subshell: str | None = None,
    ) -> Request:
        """Send a request and return at once."""
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": msg_type,
            "username": "test",
            "session": self.connection.session,
            "date": dt.datetime.now(dt.UTC).isoformat(),
            "version": "5.5",
        }
        if subshell is not None:
            header["subshell_id"] = subshell
        message = {
            "header": header,
            "parent_header": {},
            "metadata": metadata or {},
            "content": content or {},
            "buffers": list(buffers),
        }
        request = Request(self, message)
        self.requests[request.msg_id] = request
        self.connection.send(channel, message)
        return request

    def execute(self, code: str, *, subshell: str | None = None, **options: Any) -> Request:
        """Send a cell and return at once; options are fields of ``execute_request``."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
            **options,
        }
        return self.request("execute_request", content, subshell=subshell)

    def cell(self, code: str, timeout: float = 30.0, **options: Any) -> Request:
        """Run a cell to its end."""
        return self.execute(code, **options).wait(timeout)

    def value(self, expression: str) -> Any:
        """Return the value of an expression whose repr is a literal."""
        import ast

        request = self.cell(expression)
        assert request.result is not None, request
        return ast.literal_eval(request.result)

    def ask(self, msg_type: str, timeout: float = 30.0, **content: Any) -> dict[str, Any]:
        """Send a shell request and return the content of its reply."""
        return self.request(msg_type, content).wait(timeout).content

    def ask_control(self, msg_type: str, timeout: float = 30.0, **content: Any) -> dict[str, Any]:
        request = self.request(msg_type, content, channel="control")
        self.wait_until(lambda: request.reply is not None, timeout, f"the reply to {msg_type}")
        return request.content

    def answer(self, request: Request, value: str) -> None:
        """Answer the latest input request of a cell."""
        asked = request.inputs[-1]
        message = self.request("input_reply", {"value": value, "status": "ok"}, channel="stdin")
        message.message["parent_header"] = asked["header"]

    def pump(self, timeout: float) -> int:
        """Take in what has arrived; return how many messages."""
        messages = self.connection.receive(timeout)
        for message in messages:
            message["at"] = time.monotonic()
            # Records straight from an interpreter bear no ids: a relay gives them out.
            if msg_id := message["header"].get("msg_id"):
                if (message["channel"], msg_id) in self._seen:
                    self.repeats.append(message)
                    continue
                self._seen.add((message["channel"], msg_id))
            self.log.append(message)
            request = self.requests.get(message["parent_header"].get("msg_id", ""))
            if request is None:
                self.strays.append(message)
            elif message["channel"] == "iopub":
                request.iopub.append(message)
            elif message["channel"] == "stdin":
                request.inputs.append(message)
            else:
                assert request.reply is None, f"a second reply: {request}"
                request.reply = message
        return len(messages)

    def wait_until(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        """Take messages in until a condition holds; fail at the deadline."""
        deadline = time.monotonic() + timeout
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"waited {timeout:g} s for {what}")
            self.pump(min(left, 0.2))

    def drain(self, quiet: float = 0.3, limit: float = 10.0) -> None:
        """Take messages in until nothing has come for `quiet` seconds."""
        deadline = time.monotonic() + limit
        while self.pump(quiet) and time.monotonic() < deadline:
            pass

    def become_ready(self, timeout: float = 60.0) -> None:
        """Ask who is there until an answer and a status have come: shell and iopub both work."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            asked = self.request("kernel_info_request")
            try:
                self.wait_until(lambda asked=asked: asked.is_done, 1.0, "kernel_info")
            except AssertionError:
                if not self.connection.is_alive():
                    raise AssertionError("the kernel ended while it was being started") from None
            else:
                self.drain(0.05)
                return
        raise AssertionError(f"no kernel after {timeout:g} s")

    def interrupt(self) -> None:
        self.connection.interrupt()

    def restart(self, timeout: float = 60.0) -> None:
        self.connection.restart()
        self.become_ready(timeout)

    def close(self) -> None:
        self.connection.close()
