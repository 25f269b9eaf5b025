"""What a sandbox may say: one validator per message type, pure; those of replies are in `replies`.

Code in a cell can write any record it likes, so every message is taken apart and built anew from
the fields its type has.  A type without a validator here does not pass.  Who a message is for is
not decided here but in `requests`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sandbox_kernel.kernel import fields
from sandbox_kernel.kernel.fields import Content
from sandbox_kernel.kernel.jsontext import Refused
from sandbox_kernel.kernel.replies import HOST_COMM_PREFIX, REPLIES
from sandbox_kernel.wall import forms
from sandbox_kernel.wall.modes import Mode, OutputLimits, Wall

__all__ = [
    "CONTROL_REQUESTS",
    "HOST_COMM_PREFIX",
    "SHELL_REQUESTS",
    "Policy",
    "reply_type",
]

_MAX_PROMPT = 10_000
_ASKED_INSIDE = " (asked by code in the sandbox) "
_TRUSTED = "Outputs of this sandbox are trusted: they can act in the page, and so on the host."

_COMM_MESSAGES = frozenset({"comm_open", "comm_msg", "comm_close"})
_EVERYWHERE = frozenset(
    {
        "comm_info_request",
        "complete_request",
        "connect_request",
        "execute_request",
        "history_request",
        "inspect_request",
        "interrupt_request",
        "is_complete_request",
        "kernel_info_request",
        "shutdown_request",
    }
)
SHELL_REQUESTS = _EVERYWHERE | _COMM_MESSAGES
"""What a client may send on the shell channel."""
CONTROL_REQUESTS = _EVERYWHERE | {
    "create_subshell_request",
    "debug_request",
    "delete_subshell_request",
    "list_subshell_request",
    "usage_request",
}
"""What a client may send on the control channel."""


def reply_type(request_type: str) -> str | None:
    """Return the type that answers a request, or None for messages without an answer."""
    if request_type in _COMM_MESSAGES:
        return None
    return request_type.removesuffix("_request") + "_reply"


def _stream(content: Content) -> Content:
    name = content.get("name")
    if name not in ("stdout", "stderr"):
        raise Refused("a stream of unknown name")
    return {"name": name, "text": fields.text(content, "text")}


def _display(content: Content) -> Content:
    shown = fields.bundle(content)  # not judged yet: see `Policy`
    if "transient" in content:
        transient = fields.obj(content, "transient")
        known = "display_id" in transient
        shown["transient"] = {"display_id": fields.text(transient, "display_id")} if known else {}
    return shown


def _execute_result(content: Content) -> Content:
    return {**_display(content), "execution_count": fields.count(content)}


def _execute_input(content: Content) -> Content:
    return {"code": fields.text(content, "code"), "execution_count": fields.count(content)}


def _status(content: Content) -> Content:
    # JupyterLab drops every future and comm on "restarting", so that word is ours alone.
    state = content.get("execution_state")
    if state not in ("busy", "idle", "starting"):
        raise Refused("a status the sandbox may not claim")
    return {"execution_state": state}


def _clear_output(content: Content) -> Content:
    return {"wait": content.get("wait") is True}


def _comm(content: Content) -> Content:
    comm_id = fields.text(content, "comm_id")
    if not comm_id:
        raise Refused("a comm without an id")
    if comm_id.startswith(HOST_COMM_PREFIX):
        raise Refused("a comm of the host")
    data = content.get("data")
    return {"comm_id": comm_id, "data": {} if data is None else data}


def _comm_open(content: Content) -> Content:
    # target_module is left out: a page would load it as a script, by URL.
    return {**_comm(content), "target_name": fields.text(content, "target_name")}


def _debug_event(content: Content) -> Content:
    told: Content = {"type": "event", "event": fields.text(content, "event")}
    if "seq" in content:
        told["seq"] = fields.count(content, "seq")
    if "body" in content:
        told["body"] = fields.obj(content, "body")
    return told


_IOPUB: Mapping[str, Callable[[Content], Content]] = {
    "clear_output": _clear_output,
    "comm_close": _comm,
    "comm_msg": _comm,
    "comm_open": _comm_open,
    "debug_event": _debug_event,
    "display_data": _display,
    "error": fields.error,
    "execute_input": _execute_input,
    "execute_result": _execute_result,
    "status": _status,
    "stream": _stream,
    "update_display_data": _display,
}

_WIDEST = OutputLimits()
_DRAWN = frozenset({"display_data", "execute_result", "update_display_data"})


class Policy:
    """The decisions, with the settings they depend on.

    Parameters
    ----------
    wall : Wall
        How what is drawn is judged.
    plant_cells : bool
        Let a cell's reply put text into the next cell (`set_next_input`).  The user, or "run
        all", would then execute what the sandbox wrote, perhaps as a command of the host.
    """

    def __init__(self, wall: Wall | None = None, *, plant_cells: bool = False) -> None:
        self.wall = Wall() if wall is None else wall
        # What is trusted has the bounds of what the relay can carry.
        self.limits = _WIDEST if self.wall.is_off else self.wall.limits
        self.plant_cells = plant_cells

    def check_type(self, msg_type: str) -> None:
        """Refuse a message by its type, before its content is read.

        Raises
        ------
        Refused
            `publish` would refuse it whatever it holds.
        """
        self._publisher(msg_type)

    @staticmethod
    def _publisher(msg_type: str) -> Callable[[Content], Content]:
        check = _IOPUB.get(msg_type)
        if check is None:
            raise Refused("a type the sandbox may not publish")
        return check

    def publish(self, msg_type: str, content: object) -> Content:
        """Return the content to publish on iopub.

        Raises
        ------
        Refused
            The message may not pass.
        """
        check = self._publisher(msg_type)
        if not isinstance(content, dict):
            raise Refused("its content is no object")
        checked = check(content)
        return self._judged(checked) if msg_type in _DRAWN else checked

    def _judged(self, shown: Content) -> Content:
        data, metadata = forms.bundle(shown["data"], shown["metadata"], self.wall)
        return {**shown, "data": data, "metadata": metadata}

    def reply(self, msg_type: str, content: object) -> Content:
        """Return the content of a reply; its type has been matched to a request already.

        Raises
        ------
        Refused
            The reply may not pass.
        """
        check = REPLIES.get(msg_type)
        if check is None:
            raise Refused("a reply of unknown type")
        if not isinstance(content, dict):
            raise Refused("its content is no object")
        checked: Content = check(content)
        if msg_type == "execute_reply":
            self._finish_execute_reply(checked)
        elif msg_type == "debug_reply" and checked.get("command") == "richInspectVariables":
            if "body" in checked:
                checked["body"] = self._judged(checked["body"])
        elif msg_type == "kernel_info_reply" and self.wall.mode is Mode.TRUSTED:
            checked["banner"] = f"{checked.get('banner', '')}\n{_TRUSTED}".strip()
        return checked

    def _finish_execute_reply(self, checked: Content) -> None:
        if "payload" in checked:
            checked["payload"] = self._payload(checked["payload"])
        for name, value in checked.get("user_expressions", {}).items():
            if value["status"] == "ok":
                checked["user_expressions"][name] = self._judged(value)

    def _payload(self, payload: object) -> list[Content]:
        if not isinstance(payload, list):
            return []
        kept: list[Content] = []
        for entry in payload:
            source = entry.get("source") if isinstance(entry, dict) else None
            if source == "page":
                start = entry.get("start", 0)
                kept.append(
                    {
                        "source": "page",
                        # A pager draws other forms as a trusted output is drawn.
                        "data": fields.plain_only(fields.obj(entry, "data")),
                        "start": start if isinstance(start, int) else 0,
                    }
                )
            elif source == "ask_exit":
                kept.append({"source": "ask_exit", "keepkernel": entry.get("keepkernel") is True})
            elif source == "set_next_input" and self.plant_cells:
                kept.append(
                    {
                        "source": "set_next_input",
                        "text": fields.text(entry, "text"),
                        "replace": entry.get("replace") is True,
                    }
                )
        return kept

    def ask(self, content: object) -> Content:
        """Return the content of an input_request.

        Raises
        ------
        Refused
            It has no such shape.
        """
        if not isinstance(content, dict):
            raise Refused("its content is no object")
        prompt = fields.text(content, "prompt")[:_MAX_PROMPT]
        password = content.get("password") is True
        # Nobody shall take a prompt of the sandbox for one of the host and type a real password.
        return {
            "prompt": prompt.rstrip() + _ASKED_INSIDE if password else prompt,
            "password": password,
        }
