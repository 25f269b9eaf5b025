"""Ports of programs: who listens, waiting for one, and connections with both ends of every kind."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from sandbox_kernel.errors import (
    InvalidPortError,
    PortError,
    ProcessExitedBeforeReadyError,
    ProcessNotFoundError,
    ProcessReadyTimeoutError,
    ProtocolViolationError,
    ServiceNotRespondingError,
    StalePreviewUrlError,
    StaleProcessHandleError,
    ValidationFailedError,
)
from sandbox_kernel.wire.port_operations import PIECE, PortEvent, PortOrder, WaitPortRequest
from sandbox_kernel.wire.rpc import FrameKind
from sandbox_runtime import dial, listeners
from sandbox_runtime.http_probe import read_status
from sandbox_runtime.loop import Loop
from sandbox_runtime.port_channel import MOST_INPUT, MOST_QUEUED
from sandbox_runtime.port_waits import pause_after
from sandbox_runtime.ports import MOST_CONNECTIONS
from tests.support.echo_server import EchoServer
from tests.support.port_link import PortLink
from tests.support.runtime_child import DEADLINE, Client, RuntimeChild

NOTHING = 1 << 20


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A program that listens and does nothing by itself; the test accepts."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(DEADLINE)
        yield made


@pytest.fixture
def link(client: Client, listener: socket.socket) -> Iterator[tuple[PortLink, socket.socket]]:
    """Both ends of one connection: the client's and the program's."""
    made = PortLink(client, port_of(listener))
    with listener.accept()[0] as service:
        service.settimeout(DEADLINE)
        yield made, service


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def free_port() -> int:
    """Return a port that nobody listens on, outside the range the system gives out itself."""
    while True:
        port = random.randrange(20000, 30000)  # noqa: S311
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def receive(sock: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = sock.recv(min(size, 1 << 20))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def send_until_stuck(sock: socket.socket, send: Callable[[], int]) -> int:
    """Send until nothing is taken for a while; return how many bytes were."""
    sock.settimeout(0.7)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 1 << 30:
            sent += send()
    sock.settimeout(DEADLINE)
    return sent


def until(condition: Callable[[], object], timeout: float = DEADLINE) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        line = next(line for line in file if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


def busy(runtime: RuntimeChild) -> list[str]:
    with runtime.connect() as client:
        client.welcome()
        return list(client.call("runtime.health").busy)


# --- who listens ------------------------------------------------------------------------------


def test_a_program_that_listens_is_found(client, listener):
    """port.get and port.list name it with the address it gave; one that does not listen is not."""
    port = port_of(listener)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        only_bound = port_of(bound)
        listed = {each.port: each.addresses for each in client.call("port.list").ports}

        assert listed[port] == ["127.0.0.1"]
        assert only_bound not in listed
        assert client.call("port.get", port=port).addresses == ["127.0.0.1"]
        state = client.call("port.get", port=only_bound)
        assert state.addresses == []
        assert state.incarnation == client.welcome_seen.incarnation


def test_both_ways_of_asking_the_system_agree(listener):
    """Without socket diagnosis the tables in /proc say the same."""
    with ExitStack() as stack:
        for family, address in (
            (socket.AF_INET, "0.0.0.0"),  # noqa: S104
            (socket.AF_INET, "127.0.0.7"),
            (socket.AF_INET6, "::1"),
            (socket.AF_INET6, "::"),
            (socket.AF_INET6, "::ffff:127.0.0.1"),
        ):
            made = stack.enter_context(socket.socket(family))
            made.bind((address, 0))
            made.listen()
        diagnosed, tabled = sorted(listeners._diagnosed()), sorted(listeners._tabled())

    assert diagnosed == tabled
    assert (port_of(listener), bytes([127, 0, 0, 1])) in diagnosed


@pytest.mark.parametrize(
    ("addresses", "reachable"),
    [
        (["127.0.0.1"], ["127.0.0.1"]),
        (["0.0.0.0"], ["127.0.0.1"]),  # noqa: S104
        (["::1"], ["::1"]),
        (["::"], ["127.0.0.1", "::1"]),
        (["127.0.0.2"], []),
        (["10.0.0.1", "::1"], ["::1"]),
        ([], []),
    ],
)
def test_only_the_loopback_interface_counts(addresses, reachable):
    """A program that listens elsewhere only cannot be reached through the runtime."""
    assert listeners.reachable_at(addresses) == reachable


@pytest.mark.parametrize("port", [0, 1, 80, 1023, 65536, -8000, 2**40])
@pytest.mark.parametrize("operation", ["port.get", "port.wait", "port.connect"])
def test_other_numbers_are_no_ports(client, operation, port):
    """1024 to 65535 are; the rest is refused by a typed error."""
    with pytest.raises(InvalidPortError) as caught:
        client.call(operation, port=port)
    assert caught.value.http_status == 400


@pytest.mark.parametrize("port", ["8000", "\u0668\u0660\u0660\u0660", 8000.0, True, None])
def test_what_is_no_number_is_refused(client, port):
    """Text, also of digits in other scripts, is no port on the wire."""
    with pytest.raises(ValidationFailedError):
        client.call("port.get", port=port)


def test_the_runtimes_own_port_is_not_to_be_reached(start_runtime):
    """Where the runtime itself listens by TCP, that port is neither listed nor connected to."""
    port = free_port()
    runtime = start_runtime(listen={"tcp": port})
    with socket_client(port) as client:
        assert port not in [each.port for each in client.call("port.list").ports]
        for operation in ("port.get", "port.wait", "port.connect"):
            with pytest.raises(InvalidPortError, match="own runtime"):
                client.call(operation, port=port)
    assert runtime.process.poll() is None


@contextlib.contextmanager
def socket_client(port: int) -> Iterator[Client]:
    deadline = time.monotonic() + DEADLINE
    client = Client.__new__(Client)
    while True:
        try:
            sock = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    from sandbox_kernel.wire.rpc import ClientConnection
    from tests.support.runtime_child import TOKEN

    client.protocol, client.socket = ClientConnection(), sock
    client.events, client.operations, client.granting = [], {}, True
    client.send(client.protocol.hello(TOKEN, "test"))
    client.welcome()
    with sock:
        yield client


# --- connections ------------------------------------------------------------------------------


def test_bytes_pass_unchanged_both_ways(link):
    """Every byte value, in order, in pieces of any size."""
    made, service = link
    there, back = bytes(range(256)) * 1200, bytes(reversed(range(256))) * 1201
    made.send(there[:1])
    made.send(there[1:100_000])
    made.send(there[100_000:])
    service.sendall(back)

    assert receive(service, len(there)) == there
    assert made.read(len(back)) == back
    assert made.opening.address == "127.0.0.1"


def test_a_program_at_the_other_address_is_reached(client):
    """Who listens at ::1 only is found there."""
    with socket.socket(socket.AF_INET6) as listener:
        listener.bind(("::1", 0))
        listener.listen()
        made = PortLink(client, port_of(listener))
        listener.settimeout(DEADLINE)
        with listener.accept()[0] as service:
            service.sendall(b"six")
            assert made.read(3) == b"six"
    assert made.opening.address == "::1"


def test_nobody_there_is_a_typed_error(runtime):
    """And the connection may be used for another attempt."""
    with runtime.connect() as client:
        client.welcome()
        for _ in range(3):
            with pytest.raises(ServiceNotRespondingError, match="nothing listens") as caught:
                client.call("port.connect", port=free_port())
            assert caught.value.http_status == 502
        assert client.call("runtime.health").processes == 0
    assert busy(runtime) == []


def test_one_does_not_connect_to_oneself(monkeypatch):
    """With nobody there the system may choose the very port as ours, and connect us to ourselves."""
    port = free_port()

    class Unlucky(dial.socket):
        def connect_ex(self, address):
            self.bind((address[0], port))
            return super().connect_ex(address)

    monkeypatch.setattr(dial, "socket", Unlucky)
    loop, said = Loop(print), []

    def over(*what: object) -> None:
        said.append(what)
        loop.stop()

    try:
        dial.Dial(loop, port, over, over)
        loop.run()
    finally:
        loop.close()

    assert said == [("nothing listens at 127.0.0.1 or ::1",)]


def test_a_program_that_accepts_nothing_is_given_up(runtime):
    """Its backlog is full: the attempt ends by itself, and at once when its client leaves."""
    with socket.socket() as listener, ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        with runtime.connect() as client:
            client.welcome()
            call = client.begin("port.connect", port=port_of(listener))
            assert client.event_within(call, 0.3) is None
            client.send(client.protocol.cancel(call))
            with pytest.raises(Exception, match="cancelled"):
                client.finish(call)
            begin = time.monotonic()
            with pytest.raises(ServiceNotRespondingError, match="no connection for 10 s"):
                client.call("port.connect", port=port_of(listener))
            assert 9 < time.monotonic() - begin < 15
    assert busy(runtime) == []


def test_the_client_may_end_first(link):
    """Its end is seen by the program, which goes on sending; then the channel is done."""
    made, service = link
    made.send(b"question")
    made.order(PortOrder.END)

    assert receive(service, NOTHING) == b"question"
    service.sendall(b"answer")
    service.close()
    assert made.wait_for(PortEvent.END) == b"answer"


def test_the_program_may_end_first(link):
    """Its end is told, and what the client sends still reaches it."""
    made, service = link
    service.sendall(b"greeting")
    service.shutdown(socket.SHUT_WR)

    assert made.wait_for(PortEvent.END) == b"greeting"
    made.send(b"thanks")
    made.order(PortOrder.END)
    assert receive(service, NOTHING) == b"thanks"


def test_input_after_the_end_of_input_breaks_the_protocol(link, runtime):
    """The channel is closed; the program has what came before the end."""
    made, service = link
    made.send(b"all")
    made.order(PortOrder.END)
    made.send(b"more")

    made.wait_closed()
    assert receive(service, NOTHING) == b"all"


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (FrameKind.ACK, 8),
        (FrameKind.DATA, 8),
        (FrameKind.EVENT, 8),
        (FrameKind.INPUT, PIECE + 1),
    ],
)
def test_other_frames_break_the_protocol(link, kind, size):
    """A port's channel knows CONTROL and INPUT of a bounded size from its client."""
    made, service = link
    made.frame(kind, bytes(size))

    made.wait_closed()
    assert receive(service, NOTHING) == b""


def test_unknown_orders_are_passed_over(link):
    """A newer client may say more."""
    made, service = link
    made.frame(FrameKind.CONTROL, b'{"type": "newer"}')
    made.send(b"x")

    assert receive(service, 1) == b"x"


def test_close_delivers_everything_and_then_closes(link):
    """What was sent before reaches the program; the channel's end says that it did."""
    made, service = link
    data = os.urandom(3 << 20)
    taken: list[bytes] = []
    reading = threading.Thread(target=lambda: taken.append(receive(service, NOTHING * 8)))
    reading.start()
    for begin in range(0, len(data), 1 << 18):
        made.send(data[begin : begin + (1 << 18)])
    made.order(PortOrder.CLOSE)
    made.wait_closed()
    reading.join(DEADLINE)

    assert taken == [data]


def test_a_client_that_is_killed_has_sent_what_it_has_sent(runtime, listener):
    """As with a socket of the system: what was written arrives, then the end."""
    data = os.urandom(2 << 20)
    client = runtime.connect()
    client.welcome()
    made = PortLink(client, port_of(listener))
    with listener.accept()[0] as service:
        service.settimeout(DEADLINE)
        sending = threading.Thread(target=made.send, args=(data,))
        sending.start()
        got = receive(service, 1 << 20)
        got += receive(service, (1 << 20) - 1)
        sending.join(DEADLINE)
        client.close()

        assert got + receive(service, NOTHING) == data
    until(lambda: busy(runtime) == [])


def test_a_program_that_takes_nothing_of_what_is_left_is_reset(runtime, listener):
    """Nobody waits for it for ever once its client is gone; an end would look like all there was."""
    with runtime.connect() as client:
        client.welcome()
        made = PortLink(client, port_of(listener))
        service = listener.accept()[0]

        def send() -> int:
            made.send(bytes(1 << 16))
            return 1 << 16

        send_until_stuck(client.socket, send)
    with service:
        assert f"connection to port {port_of(listener)}" in busy(runtime)
        until(lambda: busy(runtime) == [], timeout=40)
        service.settimeout(DEADLINE)
        with pytest.raises(ConnectionResetError):
            receive(service, 1 << 30)


def test_a_reset_by_the_program_is_told(link):
    """A connection that broke is no end: the client must not take it for one."""
    made, service = link
    service.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    service.close()

    made.wait_for(PortEvent.RESET)
    assert made.events == [PortEvent.RESET]


def test_a_reset_while_the_client_sends_is_told(link):
    """Also where the system tells it to what is written first."""
    made, service = link
    service.shutdown(socket.SHUT_WR)
    made.wait_for(PortEvent.END)
    service.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    service.close()
    with contextlib.suppress(BrokenPipeError):
        for _ in range(200):
            made.send(b"x" * 1000)
    made.wait_for(PortEvent.RESET)


def test_a_client_that_reads_nothing_stops_the_program_alone(runtime, link):
    """A flood waits in the program's own socket; the runtime's memory does not grow with it."""
    made, service = link
    before = memory(runtime.pid)
    sent = send_until_stuck(service, lambda: service.send(bytes(1 << 20)))
    assert sent < 64 << 20, "the system's buffers and ours"
    assert memory(runtime.pid) - before < MOST_QUEUED + (16 << 20)
    with runtime.connect() as other:
        other.welcome()
        begin = time.monotonic()
        other.run("true")
        assert time.monotonic() - begin < 10
    began, at = cpu(runtime.pid), time.monotonic()
    time.sleep(0.5)
    assert cpu(runtime.pid) - began < 0.5 * (time.monotonic() - at), "nobody spins"

    service.shutdown(socket.SHUT_WR)
    assert len(made.wait_for(PortEvent.END)) == sent


def test_a_flood_whose_both_ends_are_done_does_not_spin(runtime, link):
    """Nothing is asked of a socket that has ended while its last bytes cannot be passed on."""
    made, service = link
    made.order(PortOrder.END)
    assert receive(service, 1) == b""
    sent = send_until_stuck(service, lambda: service.send(bytes(1 << 20)))
    service.close()
    began, at = cpu(runtime.pid), time.monotonic()
    time.sleep(0.5)

    assert cpu(runtime.pid) - began < 0.2 * (time.monotonic() - at)
    assert len(made.wait_for(PortEvent.END)) == sent


def test_a_program_that_reads_nothing_stops_its_client_alone(runtime, link):
    """What waits for it is bounded; another client is served meanwhile."""
    made, service = link
    before = memory(runtime.pid)

    def send() -> int:
        made.send(bytes(1 << 16))
        return 1 << 16

    sent = send_until_stuck(made.client.socket, send)
    assert sent < 64 << 20
    assert memory(runtime.pid) - before < MOST_INPUT + (16 << 20)
    with runtime.connect() as other:
        other.welcome()
        other.run("true")
    service.settimeout(DEADLINE)
    taken = threading.Thread(target=receive, args=(service, NOTHING << 10))
    taken.start()
    made.client.socket.settimeout(DEADLINE)
    made.client.close()
    taken.join(DEADLINE)
    assert not taken.is_alive()


def test_two_hundred_at_once(runtime, client):
    """Each has its own bytes; they leave nothing behind."""
    before = len(os.listdir(f"/proc/{runtime.pid}/fd"))
    with EchoServer() as server, ExitStack() as stack:
        made = []
        for _ in range(200):
            each = stack.enter_context(runtime.connect())
            each.welcome()
            made.append(PortLink(each, server.port))
        for number, each in enumerate(made):
            each.send(hashlib.sha256(b"%d" % number).digest() * 500)
        for number, each in enumerate(made):
            assert each.read(16000) == hashlib.sha256(b"%d" % number).digest() * 500
        assert busy(runtime) == [f"connection to port {server.port}"]
    until(lambda: busy(runtime) == [])
    until(lambda: len(os.listdir(f"/proc/{runtime.pid}/fd")) <= before)


def test_there_is_a_bound(runtime):
    """One more than there may be is refused; with one gone there is room again."""
    with EchoServer() as server, ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            each = stack.enter_context(runtime.connect())
            each.welcome()
            last = PortLink(each, server.port)
        with runtime.connect() as another:
            another.welcome()
            with pytest.raises(PortError, match="no more connections"):
                another.call("port.connect", port=server.port)
            last.client.close()
            until(lambda: _connects(runtime, server.port))


def _connects(runtime: RuntimeChild, port: int) -> bool:
    with runtime.connect() as client:
        client.welcome()
        try:
            PortLink(client, port)
        except PortError:
            return False
        return True


def test_a_port_that_is_used_again_is_the_new_program(runtime, client):
    """A connection belongs to the program that took it, the next one to its successor."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as first:
        old = PortLink(client, port)
        service = first.accept()[0]
    with socket.create_server(("127.0.0.1", port)) as second, runtime.connect() as another:
        another.welcome()
        new = PortLink(another, port)
        second.accept()[0].close()
        new.wait_for(PortEvent.END)
        service.sendall(b"still the first")
        assert old.read(15) == b"still the first"
        service.close()


def test_an_open_connection_holds_the_sandbox_awake(start_runtime, listener):
    """For as long as it is open, also without a byte; lookups and vain attempts do not."""
    runtime = start_runtime(sleep_after=0.6)
    with runtime.connect() as client, runtime.connect() as looker:
        client.welcome()
        looker.welcome()
        made = PortLink(client, port_of(listener))
        until_time = time.monotonic() + 1.5
        while time.monotonic() < until_time:
            assert looker.call("runtime.health").sleeps_in is None
            time.sleep(0.05)
        made.order(PortOrder.CLOSE)
        made.wait_closed()
        begin = time.monotonic()
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            while time.monotonic() - begin < DEADLINE:
                looker.call("port.list")
                looker.call("port.get", port=port_of(listener))
                with pytest.raises(ServiceNotRespondingError):
                    looker.call("port.connect", port=free_port())
                time.sleep(0.05)
        assert time.monotonic() - begin < DEADLINE
    assert runtime.wait_exit() == 0


def test_a_handle_of_an_earlier_container_is_stale(client, listener):
    """The incarnation is checked again at the very door."""
    port = port_of(listener)
    for operation in ("port.connect", "port.get"):
        with pytest.raises(StalePreviewUrlError) as caught:
            client.finish(client.begin(operation, port=port, incarnation="0" * 16))
        assert caught.value.http_status == 410
    with pytest.raises(StaleProcessHandleError):
        client.finish(client.begin("port.wait", port=port, process_id="p-1", incarnation="0" * 16))


# --- waiting ----------------------------------------------------------------------------------


def test_a_port_that_is_ready_is_ready_at_once(client, listener):
    """No time passes."""
    ready = client.call("port.wait", port=port_of(listener), timeout=0)

    assert ready.status is None
    assert ready.waited < 0.1


def test_waiting_ends_soon_after_a_program_listens(client):
    """To bind is not enough; nobody connects to find out, so a program sees its clients only."""
    port = free_port()
    call = client.begin("port.wait", port=port, timeout=DEADLINE)
    assert client.event_within(call, 0.3) is None
    with socket.socket() as late:
        late.bind(("127.0.0.1", port))
        assert client.event_within(call, 0.3) is None
        begin = time.monotonic()
        late.listen()
        ready = client.finish(call)
        assert time.monotonic() - begin < 1
        late.settimeout(0.1)
        with pytest.raises(TimeoutError):
            late.accept()
    assert ready.waited > 0.2


def test_waiting_long_costs_next_to_nothing(runtime):
    """Many who wait are looked after together, and seldom."""
    with runtime.connect() as client:
        client.welcome()
        for number in range(500):
            client.begin("port.wait", port=1024 + number)
        time.sleep(1.0)
        before = cpu(runtime.pid)
        time.sleep(2.0)
        spent = cpu(runtime.pid) - before
    assert spent < 0.3
    until(lambda: busy(runtime) == [])


def test_a_wait_has_a_pace_of_its_length():
    """A tenth of what it has taken so far, neither a busy loop nor a long delay."""
    assert pause_after(0.0) == 0.005
    assert pause_after(1.0) == 0.1
    assert pause_after(3600.0) == 0.25


@pytest.mark.parametrize("timeout", [0.0, 0.3])
def test_a_wait_may_have_a_limit(client, timeout):
    """The error says what was missing."""
    with pytest.raises(ProcessReadyTimeoutError, match="nothing listens") as caught:
        client.call("port.wait", port=free_port(), timeout=timeout)
    assert caught.value.http_status == 408
    assert caught.value.context["timeout"] == timeout


def test_a_wait_ends_with_its_process(client):
    """With its code; one that has ended before is told at once."""
    info = client.call("process.start", argv=["sh", "-c", "sleep 0.3; exit 3"])
    for _ in range(2):
        with pytest.raises(ProcessExitedBeforeReadyError) as caught:
            client.call("port.wait", port=free_port(), process_id=info.process_id)
        assert caught.value.context["exit_code"] == 3
    with pytest.raises(ProcessNotFoundError):
        client.call("port.wait", port=free_port(), process_id="no-such")


def test_a_wait_that_fails_at_once_ends_no_other(runtime, client):
    """One for an unknown process leaves another one at the same port as it is."""
    port = free_port()
    call = client.begin("port.wait", port=port)
    assert client.event_within(call, 0.05) is None
    with pytest.raises(ProcessNotFoundError):
        client.call("port.wait", port=port, process_id="no-such")
    assert client.event_within(call, 0.3) is None
    assert busy(runtime) == [f"wait for port {port}"]
    with socket.create_server(("127.0.0.1", port)):
        assert client.finish(call).port == port
    assert busy(runtime) == []


def test_cancelled_waits_and_lost_clients_leave_nothing(runtime):
    """Neither a holder nor a descriptor."""
    with runtime.connect() as client:
        client.welcome()
        call = client.begin("port.wait", port=free_port(), mode="http")
        assert client.event_within(call, 0.05) is None
        client.send(client.protocol.cancel(call))
        with pytest.raises(Exception, match="cancelled"):
            client.finish(call)
        client.begin("port.wait", port=free_port())
    until(lambda: busy(runtime) == [])


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "udp"},
        {"mode": "http", "path": "x"},
        {"mode": "http", "path": "/ HTTP/1.1\r\nX: y\r\n\r\n"},
        {"mode": "http", "path": "/é"},
        {"mode": "http", "path": "/" + "x" * 3000},
        {"mode": "http", "min_status": 300, "max_status": 200},
        {"mode": "http", "max_status": 1000},
        {"timeout": -1.0},
    ],
)
def test_a_wait_that_makes_no_sense_is_refused(runtime, client, fields):
    """Before anything is sent anywhere; nothing is held."""
    with pytest.raises(ValidationFailedError):
        client.call("port.wait", **{"port": 8000, **fields})
    assert busy(runtime) == []


def serve_http(listener: socket.socket, answers: list[bytes], asked: list[bytes]) -> None:
    for answer in answers:
        try:
            connection = listener.accept()[0]
        except OSError:
            return
        with connection:
            connection.settimeout(DEADLINE)
            asked.append(connection.recv(65536))
            connection.sendall(answer)


def test_http_is_ready_when_the_status_is_right(client, listener):
    """Until then it is asked again; the question is a plain one that any server takes."""
    asked: list[bytes] = []
    answers = [
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
        b"",
        b"220 mail.example ESMTP\r\n",
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    ]
    serving = threading.Thread(target=serve_http, args=(listener, answers, asked))
    serving.start()
    port = port_of(listener)
    ready = client.call("port.wait", port=port, mode="http", path="/health?a=b", timeout=DEADLINE)
    serving.join(DEADLINE)

    assert ready.status == 204
    assert len(asked) == 5
    assert asked[0].startswith(b"GET /health?a=b HTTP/1.1\r\n")
    assert f"Host: localhost:{port}\r\n".encode() in asked[0]


def test_the_range_of_statuses_may_be_chosen(client, listener):
    """404 may be what shows that the server runs; the last status is in the error."""
    answer = b"HTTP/1.0 404 Not Found\r\n\r\n"
    serving = threading.Thread(target=serve_http, args=(listener, [answer] * 1000, []))
    serving.start()
    port = port_of(listener)
    with pytest.raises(ProcessReadyTimeoutError, match="answers with status 404"):
        client.call("port.wait", port=port, mode="http", timeout=0.1)
    ready = client.call("port.wait", port=port, mode="http", min_status=400, max_status=499)
    listener.shutdown(socket.SHUT_RDWR)
    serving.join(DEADLINE)

    assert ready.status == 404


def test_a_server_that_never_answers_is_no_ready_one(runtime, client, listener):
    """It is told as such; the limit of the wait holds."""
    with pytest.raises(ProcessReadyTimeoutError):
        client.call("port.wait", port=port_of(listener), mode="http", timeout=0.5)
    until(lambda: busy(runtime) == [])


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"", None),
        (b"HT", None),
        (b"HTTP/1.1 20", None),
        (b"HTTP/1.1 200 OK\r\n", 200),
        (b"HTTP/1.0 301\r\n", 301),
        (b"HTTP/1.1 101 Switching Protocols\r\n", 101),
        (b"HTTP/1.1 100 Continue\r\n", None),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 20", None),
        (b"HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 201 x\n", 201),
    ],
)
def test_the_status_is_read_as_it_comes(head, status):
    """However the answer is cut."""
    assert read_status(head) == status


@pytest.mark.parametrize(
    "head",
    [
        b"SSH-2.0-x\r\n",
        b"\x15\x03\x01",
        b"HTTP/2 200\r\n",
        b"HTTP/1.1 2000 x\r\n",
        b"HTTP/1.1 \xd9\xa2\xd9\xa0\xd9\xa0 x\r\n",
        b"HTTP/1.1\r\n",
        b"\r\n",
    ],
)
def test_what_is_no_http_is_known_at_once(head):
    """Other protocols are not waited for."""
    with pytest.raises(ValueError, match="no HTTP"):
        read_status(head)


def test_the_request_has_the_documented_defaults():
    """mode tcp, path /, status 200 to 399."""
    request = WaitPortRequest(port=8000)

    assert (request.mode, request.path) == ("tcp", "/")
    assert (request.min_status, request.max_status) == (200, 399)


def test_a_stopping_sandbox_ends_connections_and_waits(runtime, listener):
    """Clients are told by the end of their connection, soon."""
    with runtime.connect() as client, runtime.connect() as waiter:
        client.welcome()
        waiter.welcome()
        made = PortLink(client, port_of(listener))
        service = listener.accept()[0]
        waiter.begin("port.wait", port=free_port())
        with runtime.connect() as stopper:
            stopper.welcome()
            stopper.call("runtime.shutdown", grace=0.5)
        made.wait_closed(5)
        with pytest.raises(EOFError):
            waiter.next_event(5)
        service.settimeout(5)
        assert service.recv(1) == b""
        service.close()
    assert runtime.wait_exit() == 0


def test_protocol_violations_are_typed():
    """What is no JSON object is not understood."""
    from sandbox_kernel.wire.port_operations import port_event, port_order

    assert port_order(b'{"type": "end"}') is PortOrder.END
    assert port_order(b'{"type": ["end"]}') is None
    assert port_event(b'{"type": "reset"}') is PortEvent.RESET
    assert port_event(b"{}") is None
    for payload in (b"[]", b"end", b""):
        with pytest.raises(ProtocolViolationError):
            port_order(payload)
