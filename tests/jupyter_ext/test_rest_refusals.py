"""Who may not, what may not be asked, and what comes of it: an answer in JSON, and nothing else."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import tarfile
import threading
import time

import psutil
import pytest

from jupyter_ext.routes import ROUTES
from tests.jupyter_ext.test_terminal_ws import cookie
from tests.support.jupyter_home import JupyterHome
from tests.support.rest_client import Answer, RestClient
from tests.support.ws_connection import JupyterServer

BOX = "sandboxes/demo"

_AUTHORIZER = """
from jupyter_server.auth import Authorizer

class Reader(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        with open("asked", "a") as file:
            print(action, resource, file=file)
        return resource != "sandboxes" or action == "read"

c.ServerApp.authorizer_class = Reader
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = JupyterHome(tmp_path_factory.mktemp("h")).create()
    try:
        with JupyterServer(home) as made:
            rest = RestClient(made)
            assert rest("PUT", BOX, {}).status == 201
            yield made
            assert "Traceback" not in made.log, made.log
    finally:
        home.destroy_named_sandboxes()


@pytest.fixture(scope="module")
def rest(server):
    return RestClient(server)


def raw(server, data: bytes, *, half: bool = False, timeout: float = 20) -> bytes:
    """Send bytes as they are, and return all that comes back."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as connection:
        connection.sendall(data)
        if half:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while piece := connection.recv(65536):
            received += piece
        return received


def _path(route) -> str:
    path = route.path
    for name in route.parameters:
        value = {"sandbox_id": "never", "port": "8000", "path": "tmp/x"}.get(name, "x")
        path = path.replace("{" + name + "}", value)
    return path


# --- who may ----------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_nobody_gets_anywhere_without_a_login(server, route):
    """403 for every route, in JSON; a wrong token is none."""
    nobody = RestClient(server, token=False)
    for headers in ({}, {"Authorization": "token wrong"}):
        answer = nobody(route.method, _path(route), **headers)
        assert answer.status == 403
        if route.method != "HEAD" and route.websocket is None:
            assert answer.code == "FORBIDDEN"
    assert RestClient(server)("GET", "sandboxes/never").status == 404


@pytest.mark.parametrize(
    "route", [each for each in ROUTES if each.method not in ("GET", "HEAD")], ids=lambda r: r.name
)
def test_a_cookie_alone_changes_nothing(server, route):
    """A page of elsewhere can have a browser send the cookie, not the XSRF token."""
    nobody = RestClient(server, token=False)
    answer = nobody(route.method, _path(route), {}, Cookie=cookie(server))
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert RestClient(server)("GET", "sandboxes/never").status == 404


def test_a_cookie_with_its_xsrf_token_does(server):
    """As JupyterLab's own requests."""
    nobody = RestClient(server, token=False)
    login = cookie(server)
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    with contextlib.closing(connection):
        connection.request("GET", "/tree", headers={"Cookie": login})
        answer = connection.getresponse()
        answer.read()
        given = [
            each.split(";")[0]
            for each in answer.headers.get_all("Set-Cookie")
            if each.startswith("_xsrf=")
        ]
    token = given[0].removeprefix("_xsrf=")
    both = f"{login}; {given[0]}"
    body = {"argv": ["true"]}
    allowed = nobody("POST", f"{BOX}/exec", body, Cookie=both, X_XSRFToken=token)
    assert allowed.status == 200
    assert nobody("POST", f"{BOX}/exec", body, Cookie=both, X_XSRFToken="x").status == 403


def test_a_page_of_elsewhere_reads_nothing(server):
    """A foreign Origin is refused with the cookie."""
    nobody = RestClient(server, token=False)
    answer = nobody("GET", BOX, Cookie=cookie(server), Origin="http://other.invalid")
    assert (answer.status, answer.code) == (404, "NOT_FOUND")
    assert "other.invalid" not in json.dumps(dict(answer.headers))


def test_the_authorizer_decides_by_action(tmp_path):
    """The resource is ``sandboxes``; who may read may neither write nor execute."""
    home = JupyterHome(tmp_path).create()
    (home.root / "cfg" / "jupyter_server_config.py").write_text(_AUTHORIZER)
    try:
        with JupyterServer(home) as server:
            rest = RestClient(server)
            for route in ROUTES:
                answer = rest(route.method, _path(route), timeout=20)
                if route.action == "read":
                    assert answer.status != 403, route
                else:
                    assert answer.status == 403, route
            assert rest("GET", "sandboxes").value["sandboxes"] == []
            asked = set((home.work / "asked").read_text().splitlines())
            assert {"read sandboxes", "write sandboxes", "execute sandboxes"} <= asked
    finally:
        home.destroy_named_sandboxes()


def test_a_locked_server_lets_nobody_widen_a_sandbox(tmp_path):
    """What a sandbox may reach is the server's to say there."""
    home = JupyterHome(tmp_path).create()
    try:
        with JupyterServer(home, "--JupyterSandbox.locked=True") as server:
            rest = RestClient(server)
            for wish in (
                {"network": True},
                {"notebook_folder": "/", "folder_mode": "write"},
                {"engine": "docker"},
                {"limits": None},
                {"output_policy": "off"},
            ):
                assert rest("PUT", "sandboxes/a", wish).code == "FORBIDDEN"
                assert rest("POST", "sandboxes", wish).code == "FORBIDDEN"
            assert rest("PUT", "sandboxes/a", {"sleep_after": 60}).status == 201
            assert rest("PATCH", "sandboxes/a", {"network": True}).code == "FORBIDDEN"
    finally:
        home.destroy_named_sandboxes()


# --- methods and paths ------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted({_path(route) for route in ROUTES if not route.websocket}))
def test_other_methods_are_refused_with_those_that_are_there(server, rest, path):
    """405 in JSON, with Allow; also for methods that HTTP does not know.  OPTIONS acts nowhere."""
    there = {route.method for route in ROUTES if _path(route) == path}
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "BREW"):
        if method in there:
            continue
        answer = rest(method, path)
        assert answer.status == 405, method
        assert set(answer.headers["Allow"].split(", ")) == {*there, "OPTIONS"}
        if method != "HEAD":
            assert answer.code == "METHOD_NOT_ALLOWED"
    asked = rest("OPTIONS", path)
    assert (asked.status, asked.body) == (200, b"")


@pytest.mark.parametrize(
    "path", ["", "x", "sandboxes/", "sandboxes/a/b", "sandboxes//exec", "..", "%2e"]
)
def test_there_is_nothing_at_other_paths(rest, path):
    """404 in JSON."""
    assert rest("GET", path).code == "NOT_FOUND"
    assert rest("POST", path, {}).code == "NOT_FOUND"


@pytest.mark.parametrize(
    ("sandbox", "code"),
    [
        ("..", "INVALID_SANDBOX_ID_LENGTH"),
        ("%2e%2e%2f", "INVALID_SANDBOX_ID"),
        ("a%2fb", "INVALID_SANDBOX_ID"),
        ("A", "INVALID_SANDBOX_ID"),
        ("-a", "INVALID_SANDBOX_ID_HYPHENS"),
        ("root", "RESERVED_SANDBOX_ID"),
        ("a" * 64, "INVALID_SANDBOX_ID_LENGTH"),
        ("%FF", "VALIDATION_FAILED"),
        ("a%00", "VALIDATION_FAILED"),
        ("%C3%A9", "INVALID_SANDBOX_ID"),
        ("%F0%9F%98%80", "INVALID_SANDBOX_ID"),
        ("%27%3B", "INVALID_SANDBOX_ID"),
    ],
)
def test_odd_ids_are_no_ids(server, rest, sandbox, code):
    """Whatever a sandbox cannot be called is refused before anything looks for it."""
    expected = {code, "INVALID_SANDBOX_ID"} if sandbox == ".." else {code}
    for method, tail in (("GET", ""), ("PUT", ""), ("POST", "/exec"), ("GET", "/processes")):
        body = {"argv": ["true"]} if tail == "/exec" else {} if method == "PUT" else None
        assert rest(method, f"sandboxes/{sandbox}{tail}", body).code in expected


@pytest.mark.parametrize(
    "name", ["%FF", "a%00b", "..", "%2e%2e", "%2F", "a" * 5000, "%0d%0aX:%20y", "*", "';--"]
)
def test_odd_names_of_things_in_a_sandbox_name_nothing(rest, name):
    """404 or 400, never a fault."""
    for kind, action in (("processes", "signal"), ("sessions", "env"), ("terminals", "interrupt")):
        assert rest("GET", f"{BOX}/{kind}/{name}").status in (400, 404)
        method = "PATCH" if action == "env" else "POST"
        body = {"env": {}} if action == "env" else {}
        assert rest(method, f"{BOX}/{kind}/{name}/{action}", body).status in (400, 404)


# --- paths of files ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "..%2fx",
        "a/../../x",
        "%2e%2e/x",
        "a/./../../x",
        "a/%2e%2e/%2e%2e/x",
        ".",
        "x%00y",
        "",
        "%2F",
        "a" * 5000,
        "b/" * 3000 + "c",
        "workspace/" + "n" * 300,
    ],
)
def test_paths_that_mean_nothing_or_something_else_are_refused(rest, path):
    """4xx for dots, NUL, empty and over-long, however written; nothing is made or read."""
    for method, how in (("PUT", {"raw": b"x"}), ("GET", {}), ("DELETE", {})):
        assert 400 <= rest(method, f"{BOX}/files/{path}", **how).status < 500, method
    assert rest("HEAD", f"{BOX}/files/{path}").status in (400, 404)


@pytest.mark.parametrize("path", ["..%5Cx", "~/x", "file:x", "%252e%252e/x", "%25", "+", "a;b"])
def test_other_odd_paths_are_names_like_any_other(rest, path):
    """Decoded once, and never taken for anything else."""
    assert rest("PUT", f"{BOX}/files/workspace/odd/{path}", raw=b"1").status == 200
    listed = rest("GET", f"{BOX}/fs/list?path=/workspace/odd&recursive=true&include_hidden=true")
    names = {each["path"] for each in listed.value["entries"]}
    wanted = path.replace("%5C", "\\").replace("%25", "%")
    assert wanted in names
    assert rest("DELETE", f"{BOX}/files/workspace/odd?recursive=true").status == 204


def test_the_servers_own_files_are_never_served(server, rest):
    """Paths are the sandbox's own, also through its links and with dots in a query."""
    marker = server.home.work / "marker"
    marker.write_text("of the host")
    for path in (str(marker), f"../../../..{marker}", f"/proc/1/root{marker}"):
        assert rest("GET", f"{BOX}/fs/exists?path={path}").value == {"exists": False}
    link = {"path": "/workspace/out", "target": str(marker), "overwrite": True}
    assert rest("POST", f"{BOX}/fs/symlink", link).status == 204
    assert rest("GET", f"{BOX}/files/workspace/out").code == "FILE_NOT_FOUND"
    rest("PUT", f"{BOX}/files/workspace/out", raw=b"from inside")
    assert marker.read_text() == "of the host"


# --- bodies -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"{}{}",
        b'{"argv": ["true"], "argv": ["false"]}',
        b'{"argv": ["true"], "timeout": NaN}',
        b'{"argv": ["true"], "timeout": Infinity}',
        b'{"argv": ["true"], "timeout": 1e999}',
        b'{"argv": ["true"], "timeout": -1}',
        b'{"argv": ["true"], "timeout": "1"}',
        b'{"argv": ["true"], "timeout": true}',
        b'{"argv": ["true"], "max_output": ' + b"9" * 5000 + b"}",
        b'{"argv": ["true"], "max_output": 1e3}',
        b'{"argv": "true"}',
        b'{"argv": [1]}',
        b'{"argv": [["true"]]}',
        b'{"argv": ["a\\u0000b"]}',
        b'{"argv": ["true"], "env": {"A=B": "1"}}',
        b'{"argv": ["true"], "env": []}',
        b'{"argv": ["true"], "nope": 1}',
        b'{"argv": ["true"], "body": true}',
        b'{"argv": ["true"], "process_id": "x"}',
        b'{"argv": ["true"], "sandbox_id": "x"}',
        b'{"argv": ["cat"], "stdin": "!", "stdin_encoding": "base64"}',
        b'{"argv": ["cat"], "stdin": "\xc3\xa9", "stdin_encoding": "base64"}',
        b'{"argv": ["cat"], "stdin": "x", "stdin_encoding": "utf-16"}',
        b'{"argv": ["cat"], "stdin": "\\ud800"}',
        b'{"argv": ["true"]}\xff',
        b"\xff\xfe{\x00}\x00",
        b'{"argv": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' * 50_000,
        b"\x00",
    ],
)
def test_a_body_that_is_not_as_described_is_refused(rest, body):
    """400 with the parameter's name, and nothing is run."""
    answer = rest("POST", f"{BOX}/exec", raw=body)
    assert answer.status == 400
    assert answer.code in {
        "VALIDATION_FAILED",
        "INVALID_COMMAND",
        "INVALID_PROCESS_ENVIRONMENT",
    }
    assert len(answer.body) < 1000


@pytest.mark.parametrize(
    "query",
    [
        "follow=maybe",
        "follow=true&follow=false",
        "nope=1",
        "since=%FF",
        "max_output=0",
        "max_output=1e3",
        "max_output=%EF%BC%91",
        "max_output=999999999999999999999",
        "replay=",
    ],
)
def test_a_query_that_is_not_as_described_is_refused(rest, query):
    """400; names that jupyter_server puts there are let by."""
    made = rest("POST", f"{BOX}/processes", {"argv": ["true"]}).value["process_id"]
    path = f"{BOX}/processes/{made}/output"
    assert rest("GET", f"{path}?{query}").code == "VALIDATION_FAILED"
    assert rest("GET", f"{path}?no_track_activity=1&_=5").status == 200


def test_a_huge_body_is_refused_before_it_is_read(server, rest):
    """413 by its announced length, or once too much has come; the server's memory does not grow."""
    head = f"POST /sandbox/api/{BOX}/exec HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: token {server.token}\r\n"
    said = raw(server, f"{head}Content-Length: {1 << 40}\r\n\r\n".encode() + b"x" * 1000)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert json.loads(said.split(b"\r\n\r\n", 1)[1])["code"] == "BODY_TOO_LARGE"

    def pieces():
        for _ in range(20):
            yield b" " * (1 << 20)

    late = rest("POST", f"{BOX}/exec", raw=pieces())
    assert late.code == "BODY_TOO_LARGE"


def test_nothing_acceptable_is_406(rest):
    """Who takes neither JSON nor a stream is told what there is."""
    for accept in ("text/html", "application/json;q=0", "image/*"):
        assert (
            rest("POST", f"{BOX}/exec", {"argv": ["true"]}, Accept=accept).code == "NOT_ACCEPTABLE"
        )
    for accept in ("", "*/*", "application/*, text/html", "text/event-stream;q=0.1, */*;q=0.9"):
        answer = rest("POST", f"{BOX}/exec", {"argv": ["true"]}, Accept=accept)
        assert answer.headers["Content-Type"] == "application/json"


# --- clients that go, or are slow -------------------------------------------------------------


def _exists(rest, path) -> bool:
    return rest("GET", f"{BOX}/fs/exists?path={path}").value["exists"]


@pytest.mark.parametrize("is_chunked", [False, True])
def test_an_upload_that_breaks_leaves_nothing(server, rest, is_chunked):
    """Neither under its name nor beside it, and what was there before is unchanged."""
    rest("PUT", f"{BOX}/files/workspace/up/kept", raw=b"old")
    head = (
        f"PUT /sandbox/api/{BOX}/files/workspace/up/NAME HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: token {server.token}\r\n"
    )
    for name in ("new", "kept"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            piece = b"x" * (3 << 20)
            if is_chunked:
                start = head + "Transfer-Encoding: chunked\r\n\r\n"
                piece = b"%x\r\n%s\r\n" % (len(piece), piece)
            else:
                start = head + f"Content-Length: {10 << 20}\r\n\r\n"
            connection.sendall(start.replace("NAME", name).encode() + piece)
            _until(lambda: _drafts(rest) > 0)
        _until(lambda: _drafts(rest) == 0)
    listed = rest("POST", f"{BOX}/exec", {"argv": ["ls", "-A", "/workspace/up"]}).value["stdout"]
    assert listed.split() == ["kept"]
    assert rest("GET", f"{BOX}/files/workspace/up/kept").body == b"old"


def _drafts(rest) -> int:
    """How many uploads are under way inside."""
    busy = rest("GET", BOX).value["health"]["busy"]
    return sum(each.startswith("upload") for each in busy)


def _until(condition, timeout: float = 20) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_upload_that_cannot_be_is_answered_soon(server, rest):
    """What is refused is not read to its end, and the answer arrives."""
    rest("POST", f"{BOX}/fs/mkdir", {"path": "/workspace/folder", "parents": True})
    answer = rest("PUT", f"{BOX}/files/workspace/folder", raw=b"x" * (4 << 20))
    assert answer.code == "IS_DIRECTORY"
    head = (
        f"PUT /sandbox/api/{BOX}/files/workspace/folder HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: token {server.token}\r\nContent-Length: {1 << 40}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head.encode())
            for _ in range(64):
                connection.sendall(b"x" * (1 << 20))
        with contextlib.suppress(ConnectionError):
            assert connection.recv(65536).startswith((b"HTTP/1.1 400", b""))


def test_many_who_leave_in_the_middle_of_a_stream_hurt_nobody(rest):
    """Their streams end, and everybody else's go on."""
    noise = {"command": "while :; do echo noise; sleep 0.01; done"}
    process = rest("POST", f"{BOX}/processes", noise).value["process_id"]
    path = f"{BOX}/processes/{process}/output?follow=true"
    connection, kept = rest.open("GET", path, Accept="application/x-ndjson")
    for _ in range(20):
        leaver, answer = rest.open("GET", path, Accept="text/event-stream")
        answer.readline()
        leaver.close()
    assert json.loads(kept.readline())["event"] == "output"

    def streams() -> int:
        busy = rest("GET", BOX).value["health"]["busy"]
        return sum(each.startswith("stream of") for each in busy)

    _until(lambda: streams() <= 1)
    rest("DELETE", f"{BOX}/processes")
    assert kept.read().rstrip().splitlines()[-1].startswith(b'{"event":"end"')
    connection.close()


def test_a_slow_reader_slows_the_program_and_not_the_server(rest):
    """Output waits in the sandbox for who does not take it; other calls are answered."""
    much = {"argv": ["sh", "-c", "head -c 400000000 /dev/zero; echo done > /tmp/done"]}
    connection, answer = rest.open("POST", f"{BOX}/exec", much, Accept="application/x-ndjson")
    answer.read(100)
    begin = time.monotonic()
    for _ in range(20):
        assert rest("GET", f"{BOX}/processes").status == 200
    assert time.monotonic() - begin < 10
    assert not _exists(rest, "/tmp/done")
    connection.close()


def test_an_answer_that_breaks_off_does_not_look_whole(server):
    """When the sandbox ends in the middle of a file or an archive, the client can tell."""
    rest = RestClient(server)
    box = "sandboxes/breaks"
    make = {"command": "mkdir d; head -c 200000000 /dev/urandom > d/big", "session": None}
    for path in ("files/workspace/d/big", "fs/archive?path=/workspace/d"):
        assert rest("POST", f"{box}/exec", make).value["exit_code"] == 0
        connection, answer = rest.open("GET", f"{box}/{path}")
        assert len(answer.read(1 << 20)) == 1 << 20
        assert rest("POST", f"{box}/stop", {"grace": 0}).status == 200
        is_broken = False
        try:
            while answer.read(1 << 20):
                pass
        except (http.client.IncompleteRead, ConnectionError):
            is_broken = True
        # With a length announced, the library ends without a word.
        assert is_broken or answer.length
        connection.close()


def test_files_of_any_size_pass_through_little_memory(server, rest):
    """Nothing is kept of what passes, both ways."""
    size, piece = 300 << 20, b"0123456789abcdef" * 65536
    process = psutil.Process(server.process.pid)
    before, most = process.memory_info().rss, 0

    def pieces():
        nonlocal most
        for _ in range(size // len(piece)):
            most = max(most, process.memory_info().rss)
            yield piece

    path = f"{BOX}/files/workspace/large"
    assert rest("PUT", path, raw=pieces(), timeout=120).value["size"] == size
    connection, answer = rest.open("GET", path, timeout=120)
    received = 0
    while data := answer.read(1 << 20):
        received += len(data)
        most = max(most, process.memory_info().rss)
    connection.close()
    assert received == size
    assert most - before < 64 << 20
    rest("DELETE", path)


# --- archives ---------------------------------------------------------------------------------


def _archive(*members: tuple[str, bytes, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, data in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = data.decode()
            else:
                info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"no archive at all",
        b"x" * 2000,
        _archive(("../escaped", tarfile.REGTYPE, b"1")),
        _archive(("/tmp/escaped", tarfile.REGTYPE, b"1")),
        _archive(("a/../../escaped", tarfile.REGTYPE, b"1")),
        _archive(("hard", tarfile.LNKTYPE, b"/etc/passwd")),
        _archive(("device", tarfile.CHRTYPE, b"")),
        _archive(("fifo", tarfile.FIFOTYPE, b"")),
        _archive(("cut", tarfile.REGTYPE, b"1" * 5000))[:3000],
        _archive(("cut", tarfile.REGTYPE, b"1" * (3 << 20)))[: 2 << 20],
    ],
    ids=range(10),
)
def test_hostile_archives_are_refused(rest, data):
    """400, and what is not whole is not there."""
    answer = rest("PUT", f"{BOX}/fs/archive?path=/workspace/hostile", raw=data)
    assert (answer.status, answer.code) == (400, "VALIDATION_FAILED")
    for path in (
        "/workspace/escaped",
        "/tmp/escaped",
        "/workspace/hostile/cut",
        "/workspace/hostile/hard",
    ):
        assert not _exists(rest, path)


def test_a_header_that_would_fill_the_memory_is_refused(rest):
    """An archive may announce a name of any length."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    block = info.tobuf(tarfile.GNU_FORMAT)
    answer = rest("PUT", f"{BOX}/fs/archive?path=/workspace/hostile", raw=block + b"n" * 100_000)
    assert answer.code == "VALIDATION_FAILED"


def test_many_archives_at_once_are_all_unpacked(rest):
    """None waits for a thread that another one holds."""
    data = _archive(("a", tarfile.REGTYPE, b"1" * (3 << 20)), ("b", tarfile.REGTYPE, b"2"))
    answers: list[Answer] = []

    def put(at: int) -> None:
        answers.append(rest("PUT", f"{BOX}/fs/archive?path=/workspace/many/{at}", raw=data))

    threads = [threading.Thread(target=put, args=(at,)) for at in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.status for each in answers] == [200] * 12
    rest("DELETE", f"{BOX}/files/workspace/many?recursive=true")
