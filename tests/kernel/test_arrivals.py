"""What comes out of a sandbox is judged and routed; no record makes the relay fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.kernel import arrivals as arrivals_module
from sandbox_kernel.kernel import jsontext
from sandbox_kernel.kernel.arrivals import Arrivals
from sandbox_kernel.kernel.hints import Facts
from sandbox_kernel.kernel.hostcomms import HostComms
from sandbox_kernel.kernel.link import Record
from sandbox_kernel.kernel.notes import Notes
from sandbox_kernel.kernel.outputs import KeptOutputs
from sandbox_kernel.kernel.policy import Policy
from sandbox_kernel.kernel.requests import Request, RequestTable
from sandbox_kernel.kernel.sockets import Sockets
from sandbox_kernel.kernel.speaker import Speaker
from sandbox_kernel.wall import forms
from sandbox_kernel.wall.modes import Mode, OutputLimits, Wall
from sandbox_kernel.wire.kernel import Channel


class RecordingSockets:
    """Keeps what would have been sent, as (where, type, parent's id, content)."""

    session = "s"

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, str | None, Any]] = []

    def publish(
        self, topic: bytes, msg_type: str, parent: bytes, content: bytes, **_: object
    ) -> None:
        self._keep("iopub", msg_type, parent, content)

    def send(
        self,
        channel: Channel,
        identities: object,
        msg_type: str,
        parent: bytes,
        content: bytes,
        **_: object,
    ) -> bool:
        self._keep(channel.name.lower(), msg_type, parent, content)
        return True

    def _keep(self, where: str, msg_type: str, parent: bytes, content: bytes) -> None:
        parsed = json.loads(parent)
        self.sent.append((where, msg_type, parsed.get("msg_id"), json.loads(content)))


class Bench:
    """Arrivals with a cell that runs."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.sockets = RecordingSockets()
        sockets = cast("Sockets", self.sockets)
        self.table = RequestTable()
        self.notes = Notes()
        self.hostcomms = HostComms()
        self.arrivals = Arrivals(
            sockets=sockets,
            table=self.table,
            speaker=Speaker(sockets, self.table),
            policy=policy or Policy(),
            hostcomms=self.hostcomms,
            outputs=KeptOutputs(),
            facts=Facts(),
            notes=self.notes,
        )
        self.arrivals.begin("p_", is_ready=True)
        self.cell = self.ask("cell", allow_stdin=True)

    def ask(self, msg_id: str, **options: Any) -> Request:
        header = json.dumps({"msg_id": msg_id, "msg_type": "execute_request"}).encode()
        request = Request(msg_id, header, Channel.SHELL, [b"c"], "execute_request", **options)
        self.table.add(request)
        return request

    def take(self, channel: Channel, *parts: bytes, end: int = 1) -> None:
        self.arrivals.take(Record(channel, [memoryview(part) for part in parts], end))

    def message(self, channel: Channel, msg_type: str, content: Any, parent: str = "cell") -> None:
        parts = [{"msg_type": msg_type}, {"msg_id": parent}, {}, content]
        self.take(channel, *[json.dumps(part).encode() for part in parts])


@pytest.fixture
def bench() -> Bench:
    return Bench()


JSON_BYTES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"{}",
            b"[]",
            b"null",
            b'{"msg_id":"cell"}',
            b'{"msg_id":["cell"]}',
            b'{"msg_id":{}}',
            b'{"msg_type":"status"}',
            b'{"msg_type":"execute_reply"}',
            b'{"msg_type":"input_request"}',
            b'{"msg_type":"error"}',
            b'{"msg_type":"comm_open"}',
            b'{"msg_type":7}',
            b'{"execution_state":"idle"}',
            b'{"status":"error","traceback":3}',
            b'{"status":"ok","payload":[1]}',
            b'{"prompt":null}',
            b'{"ename":{},"evalue":[]}',
            b'{"op":"ready"}',
            b"stdout",
        ]
    ),
)


@given(
    st.lists(
        st.tuples(st.sampled_from(list(Channel)), st.lists(JSON_BYTES, max_size=6)), max_size=8
    )
)
def test_no_record_makes_the_relay_fail(records: list[tuple[Channel, list[bytes]]]) -> None:
    """Whatever the parts are, they are passed on as valid messages or noted."""
    bench = Bench()
    for channel, parts in records:
        bench.take(channel, *parts)
    bench.arrivals.flush()

    assert all(content is not None for *_, content in bench.sockets.sent)


def test_neighbouring_texts_of_one_cell_become_one_message(bench: Bench) -> None:
    """Other streams, other cells and other messages end the joining, so the order is kept."""
    bench.ask("other")
    mine, theirs = b'{"msg_id":"cell"}', b'{"msg_id":"other"}'
    for name, parent, text in (
        (b"stdout", mine, b"a"),
        (b"stdout", mine, b"b"),
        (b"stderr", mine, b"c"),
        (b"stdout", theirs, b"d"),
    ):
        bench.take(Channel.STREAM, name, parent, text)
    bench.message(Channel.IOPUB, "clear_output", {"wait": True})
    bench.take(Channel.STREAM, b"stdout", mine, "ä".encode()[:1])
    bench.arrivals.flush()

    assert [
        (content.get("name"), parent, content.get("text"))
        for _, _, parent, content in bench.sockets.sent
    ] == [
        ("stdout", "cell", "ab"),
        ("stderr", "cell", "c"),
        ("stdout", "other", "d"),
        (None, "cell", None),
        ("stdout", "cell", "\ufffd"),
    ]


def test_joined_texts_stay_below_a_size_that_servers_take(bench: Bench) -> None:
    for _ in range(10):
        bench.take(Channel.STREAM, b"stdout", b'{"msg_id":"cell"}', b"x" * 100_000)
    bench.arrivals.flush()

    assert [len(content["text"]) for *_, content in bench.sockets.sent] == [200_000] * 5


def test_a_reply_goes_where_its_request_came_from(bench: Bench) -> None:
    """Whatever channel the sandbox names; and the idle that came too early follows it."""
    bench.message(Channel.IOPUB, "status", {"execution_state": "busy"})
    bench.message(Channel.IOPUB, "status", {"execution_state": "idle"})
    bench.message(Channel.CONTROL, "execute_reply", {"status": "ok", "execution_count": 4})

    assert [(where, kind) for where, kind, _, _ in bench.sockets.sent] == [
        ("iopub", "status"),
        ("shell", "execute_reply"),
        ("iopub", "status"),
    ]
    assert bench.sockets.sent[-1][3] == {"execution_state": "idle"}
    assert bench.table.execution_count == 4
    assert not bench.table.open


def test_the_shown_code_is_the_clients_own(bench: Bench) -> None:
    bench.cell.code = "mine"
    forged = {"code": "evil", "execution_count": 1}
    bench.message(Channel.IOPUB, "execute_input", forged)
    bench.message(Channel.IOPUB, "execute_input", forged)

    assert [content for *_, content in bench.sockets.sent] == [
        {"code": "mine", "execution_count": 1}
    ]
    assert bench.notes.count == 1


@pytest.mark.parametrize("existed", ["before this relay", ""])
def test_the_end_of_a_predecessors_request_is_nothing_to_note(existed: str) -> None:
    """An interpreter that was there before this relay may end what only the earlier one knew."""
    bench = Bench()
    bench.arrivals.begin("p_", is_ready=bool(existed))
    bench.message(Channel.IOPUB, "status", {"execution_state": "idle"}, "unknown")

    assert bench.sockets.sent == []
    assert bench.notes.count == (0 if existed else 1)


NO_NETWORK = b"curl: (6) Could not resolve host: packages.example\n"
REPLY = {"status": "ok", "execution_count": 1, "payload": [], "user_expressions": {}}


def test_a_program_without_network_is_followed_by_a_hint_once(bench: Bench) -> None:
    """Before the reply, after all it wrote; the next cell gets none."""
    for _ in range(2):
        bench.take(Channel.STREAM, b"stdout", b'{"msg_id": "cell"}', NO_NETWORK)
    bench.message(Channel.SHELL, "execute_reply", REPLY)
    bench.ask("next")
    bench.message(Channel.SHELL, "execute_reply", REPLY, "next")

    kinds = [(where, kind, parent) for where, kind, parent, _ in bench.sockets.sent]
    assert kinds == [
        ("iopub", "stream", "cell"),
        ("iopub", "stream", "cell"),
        ("shell", "execute_reply", "cell"),
        ("shell", "execute_reply", "next"),
    ]
    hint = bench.sockets.sent[1][3]
    assert hint["name"] == "stderr"
    assert "c.SandboxManager.network = True" in hint["text"]


def test_an_error_that_has_the_hint_is_not_followed_by_another(bench: Bench) -> None:
    """One line is enough."""
    error = {"ename": "gaierror", "evalue": "", "traceback": []}
    bench.take(Channel.STREAM, b"stdout", b'{"msg_id": "cell"}', NO_NETWORK)
    bench.message(Channel.SHELL, "execute_reply", {"status": "error", **error})

    (_, _, _, _text), (_, kind, _, reply) = bench.sockets.sent
    assert kind == "execute_reply"
    assert "network" in reply["traceback"][0]


@pytest.mark.parametrize("comms", [5, None, [], {"z": {"target_name": "t"}}])
@pytest.mark.parametrize("status", ["error", "aborted"])
def test_a_forged_answer_about_comms_still_names_the_hosts_own(
    bench: Bench, comms: object, status: str
) -> None:
    """An answer that is not good may hold anything where the comms belong."""
    bench.hostcomms.open(Widget())
    header = json.dumps({"msg_id": "c", "msg_type": "comm_info_request"}).encode()
    bench.table.add(Request("c", header, Channel.SHELL, [b"c"], "comm_info_request"))
    forged = {"status": status, "ename": "E", "evalue": "", "comms": comms}
    bench.message(Channel.SHELL, "comm_info_reply", forged, "c")

    [(_, kind, _, content)] = bench.sockets.sent
    assert kind == "comm_info_reply"
    assert list(content["comms"].values()) == [{"target_name": "w"}]


class Widget:
    """A comm of the host that does nothing."""

    target_name = "w"

    def open_data(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {}

    def message(self, data: dict[str, Any], buffers: object) -> list[Any]:
        return []

    def closed(self) -> None:
        return


def test_a_fault_of_the_judging_code_costs_one_record(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is noted and dropped: a relay that ended would leave it to its successor."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Policy, "publish", fail)
        bench.message(Channel.IOPUB, "clear_output", {})
        bench.take(Channel.STREAM, b"stdout", b"{}", b"lost")
        bench.arrivals.flush()
    bench.message(Channel.IOPUB, "clear_output", {})

    assert [kind for _, kind, _, _ in bench.sockets.sent] == ["clear_output"]
    assert bench.notes.count == 2
    assert all("ZeroDivisionError" in text for text in bench.notes.last(2))


def test_a_flood_of_refusals_costs_no_memory(bench: Bench) -> None:
    for _ in range(1000):
        bench.message(Channel.IOPUB, "evil", {})

    assert bench.notes.count == 1000
    assert len(bench.notes.last(1000)) == 20


def test_what_comes_again_is_joined_as_a_predecessor_joined_it(bench: Bench) -> None:
    """Whatever is read together now; and nobody ends a text where the predecessor did not."""
    bench.arrivals.begin("p_", is_ready=True, seams=[20, 30])
    for text, end in ((b"a", 10), (b"b", 20), (b"c", 30), (b"d", 40)):
        bench.take(Channel.STREAM, b"stdout", b'{"msg_id":"cell"}', text, end=end)
    bench.arrivals.flush()

    assert [content["text"] for *_, content in bench.sockets.sent] == ["ab", "c", "d"]
    assert [bench.arrivals.repeats(offset) for offset in (10, 29, 30)] == [True, True, False]


@pytest.mark.parametrize(
    ("channel", "msg_type"),
    [
        (Channel.IOPUB, "evil"),
        (Channel.SHELL, "evil_reply"),
        (Channel.SHELL, "kernel_info_reply"),
        (Channel.STDIN, "evil"),
    ],
)
def test_what_may_not_pass_anyway_is_not_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, channel: Channel, msg_type: str
) -> None:
    """Type and request are looked at first: to read a content can take long."""
    read: list[bytes] = []

    def noting(data: bytes, **options: int) -> Any:
        read.append(data)
        return jsontext.read(data, **options)

    monkeypatch.setattr(arrivals_module, "read", noting)
    bench.message(channel, msg_type, {"large": 1})

    assert bench.notes.count == 1
    assert b'{"large": 1}' not in read


def test_an_interpreter_starts_once(bench: Bench) -> None:
    """Who is ready does not start, and nobody does twice; else a cell could flood every client."""
    starting = {"execution_state": "starting"}
    bench.message(Channel.IOPUB, "status", starting)
    assert (bench.sockets.sent, bench.notes.count) == ([], 1)
    bench.arrivals.begin("q_", is_ready=False)
    for _ in range(3):
        bench.message(Channel.IOPUB, "status", starting)

    assert [content for *_, content in bench.sockets.sent] == [starting]
    assert bench.notes.count == 3


def test_a_record_that_relays_have_ended_on_is_left_out(bench: Bench) -> None:
    """With a note; what is before and behind it is passed on."""
    bench.arrivals.begin("p_", is_ready=True, deadly=20)
    for text, end in ((b"a", 10), (b"b", 20), (b"c", 30)):
        bench.take(Channel.STREAM, b"stdout", b'{"msg_id":"cell"}', text, end=end)
    bench.arrivals.flush()

    assert [content["text"] for *_, content in bench.sockets.sent] == ["a", "c"]
    assert "ended on it" in bench.notes.last(1)[0]


def test_a_cell_is_told_once_of_outputs_that_are_left_out(bench: Bench) -> None:
    """A flood of bad outputs is one line in the cell; the next cell has one of its own."""
    bench.ask("next")
    for _ in range(100):
        bench.message(Channel.IOPUB, "display_data", {"data": 5})
    bench.message(Channel.IOPUB, "display_data", {"data": 5}, "next")
    bench.message(Channel.IOPUB, "display_data", {"data": 5}, "unknown")

    assert [(kind, parent) for _, kind, parent, _ in bench.sockets.sent] == [
        ("stream", "cell"),
        ("stream", "next"),
    ]
    assert "left out: data is no object" in bench.sockets.sent[0][3]["text"]
    assert bench.notes.count == 102


def test_a_fault_of_the_judging_code_is_told_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell goes on, without the output and with a line that says so."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(forms, "bundle", fail)
        bench.message(Channel.IOPUB, "display_data", {"data": {"text/plain": "x"}})

    [(_, kind, _, content)] = bench.sockets.sent
    assert (kind, content["name"]) == ("stream", "stderr")


@pytest.mark.parametrize("idle_first", [False, True])
def test_a_refused_reply_does_not_leave_the_cell_waiting(bench: Bench, *, idle_first: bool) -> None:
    """When its idle has come as well the cell ends, with an error that says what was refused."""
    steps: list[Callable[[], None]] = [
        lambda: bench.message(Channel.SHELL, "execute_reply", {"status": "nonsense"}),
        lambda: bench.message(Channel.IOPUB, "status", {"execution_state": "idle"}),
    ]
    bench.message(Channel.IOPUB, "status", {"execution_state": "busy"})
    for step in reversed(steps) if idle_first else steps:
        step()

    assert [kind for _, kind, _, _ in bench.sockets.sent] == [
        "status",
        "error",
        "execute_reply",
        "status",
    ]
    assert bench.sockets.sent[2][3]["status"] == "error"
    assert "unknown status" in bench.sockets.sent[2][3]["evalue"]
    assert not bench.table.open
    assert bench.arrivals.cell_failed


def test_a_refused_reply_does_not_take_the_place_of_the_true_one(bench: Bench) -> None:
    """What a cell writes into the pipe itself cannot end it."""
    bench.message(Channel.SHELL, "execute_reply", {"status": "nonsense"})
    bench.message(Channel.SHELL, "execute_reply", REPLY)
    bench.message(Channel.IOPUB, "status", {"execution_state": "idle"})

    assert [kind for _, kind, _, _ in bench.sockets.sent] == ["execute_reply", "status"]
    assert bench.sockets.sent[0][3]["status"] == "ok"


def test_a_refused_answer_to_any_request_is_an_error(bench: Bench) -> None:
    """A page that asks for a completion is answered, too."""
    header = json.dumps({"msg_id": "c", "msg_type": "complete_request"}).encode()
    bench.table.add(Request("c", header, Channel.SHELL, [b"c"], "complete_request"))
    bench.message(Channel.SHELL, "complete_reply", {"status": "ok", "cursor_start": -1}, "c")
    bench.message(Channel.IOPUB, "status", {"execution_state": "idle"}, "c")

    replies = [content for where, *_, content in bench.sockets.sent if where == "shell"]
    assert [content["status"] for content in replies] == ["error"]


def test_bounds_of_the_host_hold_for_what_is_drawn() -> None:
    """Size and depth; what is trusted has those of the relay alone."""
    deep: Any = 1
    for _ in range(20):
        deep = [deep]
    for content in ({"data": {"text/plain": "x" * 2000}}, {"data": {"application/json": deep}}):
        for mode in (Mode.DEFAULT, Mode.TRUSTED):
            limits = OutputLimits(message_bytes=1000, depth=10)
            bench = Bench(Policy(Wall(mode=mode, limits=limits)))
            bench.message(Channel.IOPUB, "display_data", content)

            shown = [kind for _, kind, _, _ in bench.sockets.sent]
            assert shown == (["display_data"] if mode is Mode.TRUSTED else ["stream"])
