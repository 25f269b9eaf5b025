"""Previews of a real program in bubblewrap without network, through a real Jupyter server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import sync
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.jupyter_home import JupyterHome
from tests.support.ws_connection import JupyterServer

pytestmark = pytest.mark.timeout(180)

PORT, SANDBOX, TOKEN = 8000, "web", "let_me_in"
LABEL = f"{PORT}-{SANDBOX}-{TOKEN}"
PROGRAM = (Path(__file__).parents[1] / "support" / "preview_program.py").read_text()


class Preview:
    """A server, a sandbox and its program; raw connections to it."""

    def __init__(self, server: JupyterServer, sandbox: sync.Sandbox, manager: Manager) -> None:
        self.server = server
        self.sandbox = sandbox
        self.manager = manager
        self.host = f"{LABEL}.localhost:{server.port}"
        self.origin = f"http://{self.host}"
        self.path = f"/base/sandbox/preview/{LABEL}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=30)

    def ask(
        self, target: str, *headers: str, method: str = "GET", body: bytes = b"", host: str = ""
    ) -> bytes:
        """Return all that a request is answered with, up to the end of the connection."""
        with self.connect() as connection:
            lines = [f"{method} {target} HTTP/1.1", f"Host: {host or self.host}"]
            lines += ["Connection: close", *headers, "", ""]
            connection.sendall("\r\n".join(lines).encode("latin-1") + body)
            data = b""
            while piece := connection.recv(1 << 20):
                data += piece
                head, _, rest = data.partition(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: ([0-9]+)", head)
                if method != "HEAD" and length is not None and len(rest) >= int(length[1]):
                    break
            return data

    def shared(self, target: str, *headers: str, **more: Any) -> bytes:
        """Ask below the path of Jupyter's own origin, as its user."""
        token = f"Authorization: token {self.server.token}"
        host = f"127.0.0.1:{self.server.port}"
        return self.ask(self.path + target, token, *headers, host=host, **more)

    def raw(self, data: bytes, *headers: str, what: str = "raw", **more: Any) -> bytes:
        """Have the program answer with these bytes."""
        return self.ask(f"/{what}?{data.hex()}", *headers, **more)


def rest_of(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(1 << 20):
        data += piece
    return data


def parts(answer: bytes) -> tuple[int, dict[str, list[str]], bytes]:
    """Return status, headers and body, chunks put together."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        headers.setdefault(name.lower(), []).append(value)
    if headers.get("transfer-encoding") == ["chunked"]:
        whole, left = b"", body
        while True:
            size, _, left = left.partition(b"\r\n")
            if not int(size, 16):
                break
            whole, left = whole + left[: int(size, 16)], left[int(size, 16) + 2 :]
        body = whole
    return int(first.split(" ")[1]), headers, body


def said(answer: bytes) -> dict[str, Any]:
    """Return what the program has been asked."""
    status, _, body = parts(answer)
    assert status == 200, answer
    told: dict[str, Any] = json.loads(body)
    return told


def told_headers(answer: bytes) -> dict[str, str]:
    return {name.lower(): value for name, value in said(answer)["headers"]}


@pytest.fixture(scope="module")
def preview() -> Iterator[Preview]:
    with tempfile.TemporaryDirectory(prefix="pv") as folder:
        home = JupyterHome(Path(folder)).create()
        manager = Manager(Settings(data_dir=home.sandboxes))
        with (
            JupyterServer(home, "--SandboxPreview.answer_timeout=2", base_url="/base/") as server,
            sync.get_sandbox(SANDBOX, manager=manager, keep_alive=True) as sandbox,
        ):
            sandbox.write_file("/workspace/program.py", PROGRAM)
            process = sandbox.start_process(["python", "program.py", str(PORT)])
            process.wait_for_port(PORT, timeout=30)
            sandbox.expose_port(PORT, token=TOKEN)
            yield Preview(server, sandbox, manager)
            home.destroy_named_sandboxes()
        manager.close()


# --- what the program is asked ------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "/echo",
        "/",
        "/?",
        "/a%2Fb//c;x=1/../d/./%20?q=%20&r=a+b&&",
        "//echo",
        "/\xe9?\xe9",
        "/%E9%ff",
        "/" + "long" * 2000,
    ],
)
@pytest.mark.parametrize("way", ["ask", "shared"])
def test_the_address_is_passed_on_as_it_is(preview: Preview, way: str, target: str) -> None:
    """Nothing is decoded, joined or put right, on a host of its own or below a path."""
    assert said(getattr(preview, way)(target))["target"] == target


def test_every_kind_of_request_comes_from_the_same_host(preview: Preview) -> None:
    """The program sees a visitor of localhost, and where the visitor believes to be."""
    told = told_headers(preview.ask("/echo"))
    with preview.connect() as connection:
        connection.sendall(
            f"GET /ws HTTP/1.1\r\nHost: {preview.host}\r\nOrigin: {preview.origin}\r\n"
            "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\r\n".encode()
        )
        data = b""
        while not data.endswith(b"\n") or b"[[" not in data:
            data += connection.recv(65536)
        upgraded = {k.lower(): v for k, v in json.loads(data.split(b"\r\n\r\n")[1])}

    for headers in (told, upgraded):
        assert headers["host"] == f"localhost:{PORT}"
        assert headers["x-forwarded-host"] == preview.host
        assert headers["x-forwarded-proto"] == "http"
        assert headers["x-forwarded-for"] == "127.0.0.1"
        assert "x-forwarded-prefix" not in headers
    assert upgraded["origin"] == f"http://localhost:{PORT}"
    assert told_headers(preview.shared("/echo"))["x-forwarded-prefix"] == preview.path


def test_the_program_sees_nothing_that_is_jupyters(preview: Preview) -> None:
    """Neither cookies nor token nor XSRF token, nor what the visitor claims about itself."""
    answer = preview.shared(
        f"/echo?a=1&token={preview.server.token}&b=2",
        "Cookie: username-127-0-0-1=secret; _xsrf=secret; a=secret",
        "X-XSRFToken: secret",
        "X-Forwarded-For: 1.2.3.4",
        "X-Forwarded-Prefix: /elsewhere",
        "Forwarded: for=1.2.3.4",
        f"Referer: {preview.server.base}/lab?token={preview.server.token}",
        "Connection: X-Secret",
        "X-Secret: secret",
        "Proxy-Authorization: secret",
    )

    told = said(answer)
    assert told["target"] == "/echo?a=1&b=2"
    text = json.dumps(told)
    for each in ("secret", "1.2.3.4", "elsewhere", preview.server.token, "eferer"):
        assert each not in text


def test_a_host_of_its_own_has_cookies_and_authorization_of_its_own(preview: Preview) -> None:
    """Also of names that Jupyter uses; not what a hub shows to all hosts of its domain."""
    told = told_headers(
        preview.ask(
            "/echo",
            "Cookie: _xsrf=inner; jupyterhub-session-id=outer",
            "Cookie: b=2",
            "Authorization: Basic dTpw",
            f"Referer: {preview.origin}/page?x",
        )
    )
    assert told["cookie"] == "_xsrf=inner; b=2"
    assert told["authorization"] == "Basic dTpw"
    assert told["referer"] == f"http://localhost:{PORT}/page?x"
    outer = f"Authorization: token {preview.server.token}"
    assert "authorization" not in told_headers(preview.ask("/echo", outer))


def test_a_whole_address_may_be_asked_for(preview: Preview) -> None:
    """As clients of proxies do; and an old client gets an answer that ends."""
    assert said(preview.ask(f"{preview.origin}/echo?x"))["target"] == "/echo?x"
    answer = b"HTTP/1.1 200 OK\r\n\r\nhello"
    with preview.connect() as connection:
        connection.sendall(
            f"GET /raw?{answer.hex()} HTTP/1.0\r\nHost: {preview.host}\r\n\r\n".encode()
        )
        assert rest_of(connection).endswith(b"\r\n\r\nhello")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
def test_methods_and_bodies_arrive(preview: Preview, method: str) -> None:
    """With a length, or in chunks, whatever the method; no XSRF token of Jupyter's is needed."""
    body = bytes(range(256)) * 4000
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(body[at : at + 70_000]), body[at : at + 70_000])
        for at in range(0, len(body), 70_000)
    )
    for told in (
        said(preview.ask("/echo", f"Content-Length: {len(body)}", method=method, body=body)),
        said(
            preview.ask(
                "/echo",
                "Transfer-Encoding: chunked",
                method=method,
                body=chunks + b"0\r\n\r\n",
            )
        ),
    ):
        assert (told["method"], told["size"]) == (method, len(body))
        assert told["sha256"] == hashlib.sha256(body).hexdigest()


def test_a_program_is_asked_whether_it_wants_a_body(preview: Preview) -> None:
    """Its word decides: what it refuses is not sent."""
    refused = preview.ask(
        "/refuse", "Expect: 100-continue", "Content-Length: 9999999", method="POST"
    )
    with preview.connect() as connection:
        connection.sendall(
            f"POST /echo HTTP/1.1\r\nHost: {preview.host}\r\nConnection: close\r\n"
            "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n".encode()
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"12345")
        taken = rest_of(connection)

    assert refused.startswith(b"HTTP/1.1 417 ")
    assert b" 100 " not in refused.split(b"\r\n\r\n")[0]
    assert said(taken)["size"] == 5


def test_an_answer_may_come_before_the_body_has(preview: Preview) -> None:
    """It is passed on at once."""
    with preview.connect() as connection:
        connection.sendall(
            f"POST /early HTTP/1.1\r\nHost: {preview.host}\r\nContent-Length: 6\r\n\r\n123".encode()
        )
        data = b""
        while b"early" not in data:
            data += connection.recv(1000)
        assert data.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "head",
    [
        "POST /echo HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "GET /echo HTTP/1.1\r\nX: a\r\n\r\nGET /second HTTP/1.1\r\nHost: other\r\n\r\n",
    ],
)
def test_no_request_is_smuggled(preview: Preview, head: str) -> None:
    """The program sees one request for each that the server sees, or none."""
    first, rest = head.split("\r\n", 1)
    with preview.connect() as connection:
        connection.sendall(f"{first}\r\nHost: {preview.host}\r\n{rest}".encode())
        connection.shutdown(socket.SHUT_WR)
        data = rest_of(connection)
    assert b'"/second"' not in data
    if first.startswith("POST"):
        assert b'"method"' not in data


# --- what the browser gets ------------------------------------------------------------------------


def test_answers_are_passed_on_as_they_are(preview: Preview) -> None:
    """Status, reason, repeated headers and letters of any kind; compressed bodies untouched."""
    body = bytes(range(256))
    status, headers, got = parts(
        preview.raw(
            b"HTTP/1.1 299 Quite fine\r\nContent-Encoding: gzip\r\nContent-Length: 256\r\n"
            b"Warning: one\r\nWarning: two\r\nX-Letters: \xe9\r\nConnection: X-Hop\r\n"
            b"X-Hop: 1\r\nKeep-Alive: 5\r\n\r\n" + body
        )
    )
    assert (status, got) == (299, body)
    assert headers["warning"] == ["one", "two"]
    assert headers["x-letters"] == ["\xe9"]
    assert headers["content-encoding"] == ["gzip"]
    assert headers["content-length"] == ["256"]
    assert "x-hop" not in headers
    assert "keep-alive" not in headers
    assert headers["referrer-policy"] == ["same-origin"]


@pytest.mark.parametrize(
    ("framing", "rest"),
    [
        ("Content-Length: 5", b"hello"),
        ("Transfer-Encoding: chunked", b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n"),
        ("X-Until: the end", b"hello"),
    ],
)
def test_bodies_may_be_framed_in_every_way(preview: Preview, framing: str, rest: bytes) -> None:
    """By length, in chunks or by the end; trailers are dropped."""
    answer = preview.raw(f"HTTP/1.1 200 OK\r\n{framing}\r\n\r\n".encode() + rest)
    assert parts(answer)[2] == b"hello"
    assert b"Trailer" not in answer


def test_answers_without_bodies_have_none(preview: Preview) -> None:
    """HEAD, 204, 304; and interim answers are not final."""
    head = preview.ask("/echo", method="HEAD")
    assert re.search(rb"(?i)content-length: [1-9]", head)
    assert head.endswith(b"\r\n\r\n")
    assert preview.raw(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n").endswith(b"\r\n\r\n")
    assert preview.raw(b"HTTP/1.1 204 No Content\r\n\r\n").endswith(b"\r\n\r\n")
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    answer = preview.raw(hints + b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"x")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"hello\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\x00c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20,
    ],
    ids=lambda answer: answer[:40].decode("latin-1"),
)
def test_what_is_no_answer_is_not_passed_on(preview: Preview, answer: bytes) -> None:
    """502, in JSON for programs and as a page for people."""
    status, headers, body = parts(preview.raw(answer))
    assert status == 502
    assert json.loads(body)["code"] == "INVALID_PREVIEW_ANSWER"
    assert headers["content-type"] == ["application/json"]
    status, headers, body = parts(preview.raw(answer, "Accept: text/html,*/*"))
    assert status == 502
    assert headers["content-type"] == ["text/html; charset=utf-8"]
    assert b"INVALID_PREVIEW_ANSWER" in body


def test_heads_are_limited(preview: Preview) -> None:
    """What comes from inside is not kept without end."""
    assert parts(preview.ask("/long?60000"))[1]["x"] == ["x" * 60_000]
    status, _, body = parts(preview.ask("/long?1000000"))
    assert (status, json.loads(body)["code"]) == (502, "INVALID_PREVIEW_ANSWER")


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", "raw"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "raw"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", "raw"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", "reset"),
    ],
    ids=["length", "chunks", "bad chunk", "reset"],
)
def test_a_cut_answer_does_not_look_whole(preview: Preview, answer: bytes, what: str) -> None:
    """The browser's connection breaks where the program's did."""
    with preview.connect() as connection:
        connection.sendall(
            f"GET /{what}?{answer.hex()} HTTP/1.1\r\nHost: {preview.host}\r\n\r\n".encode()
        )
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(65536):
                data += piece
    assert not data.endswith(b"0\r\n\r\n")
    assert b"Content-Length: 10" in data or b"chunked" in data or not data


def test_nobody_waits_for_ever(preview: Preview) -> None:
    """A program that begins no answer is 504; one that has gone is 502."""
    status, _, body = parts(preview.ask("/silent"))
    assert (status, json.loads(body)["code"]) == (504, "PREVIEW_TIMEOUT")
    preview.sandbox.expose_port(8123, token="nobody")
    nobody = preview.host.replace(LABEL, f"8123-{SANDBOX}-nobody")
    status, _, body = parts(preview.ask("/", host=nobody))
    assert (status, json.loads(body)["code"]) == (502, "SERVICE_NOT_RESPONDING")


def test_events_come_as_they_are_sent(preview: Preview) -> None:
    """Nothing waits for more; the program soon sees that the visitor has gone."""
    preview.sandbox.exec(["rm", "-f", "closed"])
    begin = time.monotonic()
    with preview.connect() as connection:
        connection.sendall(f"GET /events?100 HTTP/1.1\r\nHost: {preview.host}\r\n\r\n".encode())
        data = b""
        while b"data: 4\n" not in data:
            data += connection.recv(65536)
        assert b"data: 20\n" not in data
        assert time.monotonic() - begin < 5
    deadline = time.monotonic() + 10
    while preview.sandbox.exec(["test", "-e", "closed"]).exit_code:
        assert time.monotonic() < deadline


def test_a_program_waits_for_a_visitor_who_does_not_read(preview: Preview) -> None:
    """Little is kept on the way."""
    with preview.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.sendall(f"GET /flood HTTP/1.1\r\nHost: {preview.host}\r\n\r\n".encode())
        counts = [-1, 0]
        deadline = time.monotonic() + 30
        while counts[-1] != counts[-2] or not counts[-1]:
            assert time.monotonic() < deadline
            time.sleep(0.5)  # what is looked for is that nothing happens
            counts.append(int(preview.sandbox.exec(["cat", "flooded"]).stdout or 0))
    assert counts[-1] < 40e6


def test_a_visitor_waits_for_a_program_that_does_not_read(preview: Preview) -> None:
    """The upload stands still until the program goes on."""
    size = 64 << 20
    sent = 0
    with preview.connect() as connection:
        connection.sendall(
            f"POST /lazy HTTP/1.1\r\nHost: {preview.host}\r\nConnection: close\r\n"
            f"Content-Length: {size}\r\n\r\n".encode()
        )
        connection.settimeout(0.4)
        piece = bytes(1 << 16)
        with contextlib.suppress(TimeoutError):
            while sent < size:
                sent += connection.send(piece[: size - sent])
        before = sent
        connection.settimeout(60)
        while sent < size:
            sent += connection.send(piece[: size - sent])
        answer = rest_of(connection)
    assert before < 40 << 20
    assert parts(answer)[2] == str(size).encode()


def test_large_bodies_are_whole(preview: Preview) -> None:
    """50 MB there, several at once."""
    body = bytes(range(256)) * 200_000
    results: list[dict[str, Any]] = []

    def send() -> None:
        length = f"Content-Length: {len(body)}"
        results.append(said(preview.ask("/echo", length, method="POST", body=body)))

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    digest = hashlib.sha256(body).hexdigest()
    assert [each["sha256"] for each in results] == [digest] * 2


def test_a_connection_is_used_again_for_a_moment(preview: Preview) -> None:
    """For a GET after a GET; never past the word of a program that closes, nor for what acts."""
    preview.ask("/echo")
    first = said(preview.ask("/who"))
    again = said(preview.ask("/who"))
    acting = said(preview.ask("/who", "Content-Length: 0", method="POST"))
    assert first["requests"] > 1
    assert (again["connection"], again["requests"]) == (first["connection"], first["requests"] + 1)
    assert acting["connection"] != first["connection"]
    assert ["Connection", "close"] in acting["headers"]
    time.sleep(1.5)  # longer than it is kept
    assert said(preview.ask("/who"))["connection"] != first["connection"]


def test_what_nobody_has_asked_for_is_no_answer(preview: Preview) -> None:
    """A second answer behind the first ends its connection; the next visitor gets its own."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    for later in ("0", "0.05"):
        two = (answer + b"ok", answer + b"no")
        assert preview.ask(f"/twice?{later},{two[0].hex()},{two[1].hex()}").endswith(b"ok")
        time.sleep(float(later) * 2)  # the program's own time
        assert said(preview.ask("/echo"))["target"] == "/echo"


def test_a_kept_connection_that_has_ended_is_no_error(preview: Preview) -> None:
    """Whether it ended while it was kept, or only when it was used again."""
    for what in ("/once", "/second"):
        for _ in range(5):
            assert preview.ask(what).startswith(b"HTTP/1.1 200 ")


# --- confinement ----------------------------------------------------------------------------------


def test_redirects_stay_in_the_preview(preview: Preview) -> None:
    """Whatever the program calls itself, below a path as on a host of its own."""
    answer = (
        b"HTTP/1.1 302 Found\r\nLocation: http://localhost:8000/lab\r\n"
        b"Content-Location: /here\r\nRefresh: 5; url=/there\r\nContent-Length: 0\r\n\r\n"
    )
    _, own, _ = parts(preview.raw(answer))
    _, shared, _ = parts(preview.shared(f"/raw?{answer.hex()}"))
    assert own["location"] == ["/lab"]
    assert own["refresh"] == ["5; url=/there"]
    assert shared["location"] == [f"{preview.path}/lab"]
    assert shared["content-location"] == [f"{preview.path}/here"]
    assert shared["refresh"] == [f"5; url={preview.path}/there"]


def test_below_jupyters_path_a_page_is_nobodys(preview: Preview) -> None:
    """Its origin is opaque, its cookies are its own, and nothing reaches the rest of the origin."""
    answer = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Security-Policy: default-src *\r\n"
        b"Set-Cookie: _xsrf=1; Path=/; Domain=127.0.0.1; HttpOnly\r\n"
        b"Clear-Site-Data: *\r\nService-Worker-Allowed: /\r\nWWW-Authenticate: Basic\r\n\r\n"
    )
    _, headers, _ = parts(preview.shared(f"/raw?{answer.hex()}", "Origin: null"))
    own, sandbox = headers["content-security-policy"]
    assert own == "default-src *"
    assert sandbox.startswith("sandbox ")
    assert "allow-same-origin" not in sandbox
    assert "allow-top-navigation" not in sandbox
    (cookie,) = headers["set-cookie"]
    assert re.fullmatch(rf"sbx[0-9a-f]{{8}}-_xsrf=1; HttpOnly; Path={preview.path}/", cookie)
    assert not {"clear-site-data", "service-worker-allowed", "www-authenticate"} & set(headers)
    name = cookie.partition("=")[0]
    told = told_headers(preview.shared("/echo", f"Cookie: _xsrf=outer; {name}=1"))
    assert told["cookie"] == "_xsrf=1"


def test_no_page_of_jupyters_runs_what_a_preview_says(preview: Preview) -> None:
    """A script below Jupyter's own path would be one of its origin."""
    status, _, _ = parts(
        preview.shared("/echo", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: script")
    )
    assert status == 403


# --- settings of a server ---------------------------------------------------------------------


def test_a_domain_and_a_port_may_be_set(preview: Preview) -> None:
    """Hosts below the domain lead to previews; the port serves nothing else."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ("--SandboxPreview.host=*.preview.example:8443", f"--SandboxPreview.port={port}")
    with JupyterServer(preview.server.home, *options) as server:
        other = Preview(server, preview.sandbox, preview.manager)
        other.path = f"/sandbox/preview/{LABEL}"
        host = f"{LABEL}.preview.example:8443"
        assert said(other.ask("/echo", host=host))["target"] == "/echo"
        assert parts(other.ask("/echo"))[0] == 403  # as every name that is not Jupyter's
        _, headers, _ = parts(other.shared("/x?y", "Sec-Fetch-Mode: navigate"))
        assert headers["location"] == [f"http://{host}/x?y"]
        server_port, server.port = server.port, port
        assert said(other.ask("/echo", host=host))["target"] == "/echo"
        for path in ("/", "/api/status", f"{other.path}/echo", "/login"):
            status, _, _ = parts(other.ask(path, host=f"localhost:{port}"))
            assert status == 404
        server.port = server_port


def test_frames_of_a_locked_server_stay_below_its_path(preview: Preview) -> None:
    """Its pages show frames of their own server only; windows lead on as elsewhere."""
    with JupyterServer(preview.server.home, "--JupyterSandbox.locked=True") as server:
        other = Preview(server, preview.sandbox, preview.manager)
        other.path = f"/sandbox/preview/{LABEL}"
        framed = ("Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe")
        _, headers, _ = parts(other.shared("/x", *framed))
        (address,) = headers["location"]
        assert address.startswith(f"{other.path}.")
        host = f"127.0.0.1:{server.port}"
        status, headers, _ = parts(other.ask(address, *framed, host=host))
        assert status == 200
        assert headers["content-security-policy"][-1].startswith("sandbox ")
        window = ("Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
        _, headers, _ = parts(other.shared("/x", *window))
        assert headers["location"] == [f"{other.origin}/x"]


# --- who is let in --------------------------------------------------------------------------------


def test_below_jupyters_path_users_are_let_in_only(preview: Preview) -> None:
    """Others log in first; a ticket in the address stands for the user, for this preview."""
    host = f"127.0.0.1:{preview.server.port}"
    status, _, _ = parts(preview.ask(f"{preview.path}/echo", host=host))
    assert status == 403
    status, headers, _ = parts(preview.ask(f"{preview.path}/echo", "Accept: text/html", host=host))
    assert status == 302
    assert headers["location"][0].startswith("/base/login?next=")
    # A proxy in front means that hosts of this machine are not the visitor's.
    proxied = ("Accept: text/html", "X-Forwarded-For: 192.0.2.1")
    status, headers, _ = parts(preview.shared("/echo?a=1", *proxied))
    assert status == 302
    (address,) = headers["location"]
    assert re.fullmatch(rf"{preview.path}\.[0-9a-f]+-[\w-]+/echo\?a=1", address)
    assert said(preview.ask(address, host=host))["target"] == "/echo?a=1"
    other = address.replace(TOKEN, "let_me_on")
    assert parts(preview.ask(other, host=host))[0] == 403
    wrong = address.replace("/echo", "x/echo")
    assert parts(preview.ask(wrong, host=host))[0] == 403


def test_who_opens_a_page_is_sent_to_its_own_host(preview: Preview) -> None:
    """With the query, and without Jupyter's token."""
    token = preview.server.token
    answer = preview.shared(f"/a/b?x=1&token={token}", "Sec-Fetch-Mode: navigate")
    status, headers, _ = parts(answer)
    assert status == 302
    assert headers["location"] == [f"{preview.origin}/a/b?x=1"]


def test_a_missing_slash_is_put_right(preview: Preview) -> None:
    """Relative links would lead out; the query is kept."""
    status, headers, _ = parts(preview.shared("?a=%20b"))
    assert status == 308
    assert headers["location"] == [f"{preview.path}/?a=%20b"]


@pytest.mark.parametrize("origin", ["http://other.invalid", "null", "http://127.0.0.1:{port}"])
def test_pages_from_elsewhere_do_not_connect(preview: Preview, origin: str) -> None:
    """The origin of a WebSocket is looked at before the program is asked."""
    status, _, _ = parts(
        preview.ask(
            "/ws",
            "Upgrade: websocket",
            f"Origin: {origin.format(port=preview.server.port)}",
            "Connection: Upgrade",
        )
    )
    assert status == 403


def test_jupyter_is_not_at_the_hosts_of_previews(preview: Preview) -> None:
    """Also what other extensions serve at every host; and other names are none of ours."""
    assert said(preview.ask("/base/api/status"))["target"] == "/base/api/status"
    assert said(preview.ask("/base/lab"))["target"] == "/base/lab"
    other = f"elsewhere.localhost:{preview.server.port}"
    assert parts(preview.ask("/base/api/status", host=other))[0] == 403


def test_what_is_wrong_with_a_token_is_not_said(preview: Preview) -> None:
    """404 for all that opens nothing, in the same words."""
    labels = [f"{PORT}-{SANDBOX}-wrong", f"8001-{SANDBOX}-{TOKEN}", f"{PORT}-nobody-{TOKEN}"]
    answers = {
        (status, body)
        for label in labels
        for status, _, body in [parts(preview.ask("/", host=preview.host.replace(LABEL, label)))]
    }
    ((status, body),) = answers
    assert (status, json.loads(body)["code"]) == (404, "INVALID_TOKEN")


def test_a_revoked_token_opens_nothing(preview: Preview) -> None:
    """From the next request on."""
    preview.sandbox.expose_port(8100, token="revoked")
    host = preview.host.replace(LABEL, f"8100-{SANDBOX}-revoked")
    assert parts(preview.ask("/", host=host))[0] == 502
    preview.sandbox.unexpose_port(8100)
    assert parts(preview.ask("/", host=host))[0] == 404


def test_a_preview_of_an_earlier_start_wakes_nothing(preview: Preview) -> None:
    """410 until the port is exposed again; the sandbox stays stopped."""
    sandbox = sync.get_sandbox("stale", manager=preview.manager)
    sandbox.expose_port(PORT, token=TOKEN)
    sandbox.stop()
    host = preview.host.replace(LABEL, f"{PORT}-stale-{TOKEN}")

    status, _, body = parts(preview.ask("/", host=host))
    page = preview.ask("/", "Accept: text/html", host=host)

    assert (status, json.loads(body)["code"]) == (410, "STALE_PREVIEW_URL")
    assert b"text/html" in page
    assert b"This preview has ended" in page


def test_a_socket_ends_with_its_sandbox(preview: Preview) -> None:
    """It breaks, and nothing of the server is held up by it."""
    sandbox = sync.get_sandbox("ending", manager=preview.manager)
    sandbox.write_file("/workspace/program.py", PROGRAM)
    process = sandbox.start_process(["python", "program.py", str(PORT)])
    process.wait_for_port(PORT, timeout=30)
    sandbox.expose_port(PORT, token=TOKEN)
    host = preview.host.replace(LABEL, f"{PORT}-ending-{TOKEN}")
    with preview.connect() as connection:
        connection.sendall(
            f"GET /ws HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\n\r\n".encode()
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 101 ")
        sandbox.stop()
        with contextlib.suppress(ConnectionResetError):
            rest_of(connection)
    assert parts(preview.ask("/", host=host))[0] == 410


def test_the_log_does_not_have_the_token(preview: Preview) -> None:
    """Neither of addresses that were right nor of those that were not."""
    preview.ask("/echo")
    preview.shared("/echo")
    preview.shared("/silent")
    assert TOKEN not in preview.server.log
    assert preview.server.token not in preview.server.log
