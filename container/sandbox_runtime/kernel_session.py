"""Jupyter messages of a kernel as records: a Session that neither signs nor touches a socket."""

# mypy: disable-error-code="arg-type"
# jupyter_client is annotated in part; what it takes and gives is proved by tests instead.

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import sys
from collections import OrderedDict

from jupyter_client.adapter import adapt
from jupyter_client.jsonutil import json_clean, json_default
from jupyter_client.session import DELIM, DONE, Session

from sandbox_kernel.wire.kernel import Channel

try:
    import orjson
except ImportError:  # the standard library's is slower, and enough
    orjson = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sandbox_runtime.kernel_pipe import KernelPipe

__all__ = ["Outlet", "Record", "RecordSession", "from_json", "to_json"]

_SURROGATES = re.compile("[\ud800-\udfff]")
_COPIED = 1 << 16


def to_json(value: Any) -> bytes:
    """Return a value as UTF-8 JSON, whatever it holds.

    What JSON cannot say is said as well as it can: NaN and infinities become null, lone
    surrogates U+FFFD, and values of unknown types their cleaned form, as in a local kernel.

    Raises
    ------
    ValueError, TypeError
        There is no such form.
    """
    if orjson is not None:
        try:
            return orjson.dumps(value, json_default, orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)
        except TypeError:
            pass  # surrogates, keys that are no text, integers of more than 64 bits
    try:
        text = json.dumps(value, default=json_default, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        text = json.dumps(json_clean(_finite(value)), default=json_default, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text).encode()


def _finite(value: Any) -> Any:
    """Copy JSON-like data with None for every float that is no number."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def from_json(data: bytes | memoryview) -> Any:
    """Parse UTF-8 JSON."""
    if orjson is not None:
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            pass  # big integers, and what is no JSON at all
    return json.loads(bytes(data).decode("utf-8", "replace"))


class Record:
    """A request as it came: identities and parts, its header parsed once."""

    __slots__ = ("content", "header", "identities", "parts")

    def __init__(self, identities: Sequence[Any], parts: Sequence[Any]) -> None:
        self.identities = [bytes(identity) for identity in identities]
        self.parts = parts
        self.header: dict[str, Any] = from_json(parts[0])
        self.content: Any = None

    def __len__(self) -> int:
        return len(self.parts)

    def load_content(self) -> Any:
        """Parse the content, once."""
        if self.content is None:
            self.content = from_json(self.parts[3])
        return self.content


class Outlet:
    """Stands where ipykernel has a socket to send on; records go to the kernel's pipe."""

    closed = False

    def __init__(self, pipe: KernelPipe, channel: int) -> None:
        self._pipe = pipe
        self._channel = channel

    def send_parts(self, identities: Sequence[bytes], parts: Sequence[Any]) -> None:
        """Queue a message: header, parent header, metadata, content and buffers."""
        # Topics of broadcasts would only be dropped by whoever reads them.
        self._pipe.put(self._channel, () if self._channel == Channel.IOPUB else identities, parts)

    def release(self) -> None:
        """Let what was sent go at once."""
        self._pipe.release()

    def send_multipart(self, msg_parts: Sequence[Any], *_: Any, **__: Any) -> None:
        """Queue a message in the form a socket takes: the signature is dropped."""
        parts = [bytes(part) if not isinstance(part, bytes) else part for part in msg_parts]
        at = parts.index(DELIM)
        self.send_parts(parts[:at], parts[at + 2 :])

    def flush(self, *_: Any, **__: Any) -> None:
        """Do nothing: the queue looks after itself."""

    def close(self, *_: Any, **__: Any) -> None:
        """Do nothing: the pipe outlives its outlets."""


class RecordSession(Session):
    """Builds and reads messages without signatures, for outlets; for sockets it is a plain Session.

    A header that came in goes out again, as the parent of what it caused, in the very bytes in
    which it came.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._known: OrderedDict[int, tuple[Any, bytes]] = OrderedDict()

    def header_json(self, header: dict[str, Any]) -> bytes:
        """Return a parent header as JSON."""
        if not header:
            return b"{}"
        known = self._known.get(id(header))
        if known is not None and known[0] is header:
            return known[1]
        data = to_json(header)
        self._remember(header, data)
        return data

    def _remember(self, header: Any, data: bytes) -> None:
        known = self._known
        known[id(header)] = (header, data)
        while len(known) > 64:
            try:
                known.popitem(last=False)
            except KeyError:  # another thread made room
                break

    def feed_identities(self, msg_list: Any, copy: bool = True) -> tuple[Any, Any]:  # noqa: FBT001, FBT002 - the base's signature
        """Split a message into identities and the rest."""
        if isinstance(msg_list, Record):
            return msg_list.identities, msg_list
        return super().feed_identities(msg_list, copy)

    def deserialize(self, msg_list: Any, content: bool = True, copy: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - the base's signature
        """Return a message as nested dicts."""
        if not isinstance(msg_list, Record):
            return super().deserialize(msg_list, content, copy)
        parts = msg_list.parts
        header = msg_list.header
        date = header.get("date")
        if isinstance(date, str):
            with contextlib.suppress(ValueError):
                header["date"] = dt.datetime.fromisoformat(date)
        self._remember(header, bytes(parts[0]))
        message = {
            "header": header,
            "msg_id": header["msg_id"],
            "msg_type": header["msg_type"],
            "parent_header": from_json(parts[1]),
            "metadata": from_json(parts[2]),
            "content": msg_list.load_content() if content else parts[3],
            "buffers": list(parts[4:]),
        }
        return adapt(message) if self.adapt_version else message

    def send(  # noqa: PLR0917 - the base's signature
        self,
        stream: Any,
        msg_or_type: Any,
        content: Any = None,
        parent: Any = None,
        ident: Any = None,
        buffers: Any = None,
        track: bool = False,  # noqa: FBT001, FBT002 - the base's signature
        header: Any = None,
        metadata: Any = None,
    ) -> Any:
        """Build and send a message; returns it."""
        if not isinstance(stream, Outlet):
            return super().send(
                stream, msg_or_type, content, parent, ident, buffers, track, header, metadata
            )
        if isinstance(msg_or_type, dict):
            message = msg_or_type
            buffers = buffers or message.get("buffers")
        else:
            message = self.msg(msg_or_type, content, parent, header, metadata)
        if os.getpid() != self.pid:
            _show_as_text(message)
            return None
        if self.adapt_version:
            message = adapt(message, self.adapt_version)
        content = message.get("content") or {}
        parts = [
            to_json(message["header"]),
            self.header_json(message["parent_header"]),
            to_json(message["metadata"]) if message["metadata"] else b"{}",
            content if isinstance(content, bytes) else to_json(content),
        ]
        if buffers:
            parts += map(_plain_buffer, buffers)
        if ident is None:
            ident = ()
        elif isinstance(ident, bytes):
            ident = (ident,)
        stream.send_parts(ident, parts)
        if message["msg_type"] == "status" and content.get("execution_state") == "idle":
            stream.release()
        message["tracker"] = DONE
        return message


def _show_as_text(message: dict[str, Any]) -> None:
    """Print what a forked child displays: it does not speak for the kernel."""
    data = message["content"].get("data")
    if isinstance(data, dict) and "text/plain" in data:
        sys.stdout.write(f"{data['text/plain']}\n")


def _plain_buffer(buffer: Any) -> bytes | memoryview:
    """Return a buffer as bytes to send; a large one without a copy."""
    try:
        view = memoryview(buffer)
    except TypeError as error:
        msg = "Buffer objects must support the buffer protocol."
        raise TypeError(msg) from error
    if not view.contiguous:
        msg = f"Buffer ({buffer!r}) is not contiguous"
        raise ValueError(msg)
    if view.nbytes < _COPIED or not view.c_contiguous:
        return view.tobytes("A")
    return view.cast("B")
