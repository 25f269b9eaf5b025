"""The routes of REST in a real server with real sandboxes: each does what its line says."""

from __future__ import annotations

import base64
import http.client
import io
import json
import tarfile
import threading
import time

import pytest

from tests.support.jupyter_home import JupyterHome
from tests.support.rest_client import RestClient
from tests.support.ws_connection import JupyterServer

BOX = "sandboxes/demo"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = JupyterHome(tmp_path_factory.mktemp("h")).create()
    try:
        with JupyterServer(home) as made:
            yield made
            assert "Traceback" not in made.log, made.log
    finally:
        home.destroy_named_sandboxes()


@pytest.fixture(scope="module")
def rest(server):
    return RestClient(server)


# --- sandboxes --------------------------------------------------------------------------------


def test_a_sandbox_from_its_making_to_its_end(rest):
    """Made once, found again, changed, stopped, started, destroyed; looking starts nothing."""
    assert rest("GET", "sandboxes/life").code == "SANDBOX_NOT_FOUND"
    made = rest("PUT", "sandboxes/life", {"sleep_after": "5m", "env": {"A": "secret"}})
    assert made.status == 201
    assert made.value["state"] == "running"
    assert made.value["sleep_after"] == 300
    assert made.value["env_names"] == ["A"]
    assert b"secret" not in made.body
    assert rest("PUT", "sandboxes/life", {"sleep_after": 300}).status == 200
    refused = rest("PUT", "sandboxes/life", {"sleep_after": 301, "network": True})
    assert (refused.status, refused.code) == (409, "SANDBOX_EXISTS")
    assert refused.value["context"]["differing"] == ["network", "sleep_after"]

    changed = rest("PATCH", "sandboxes/life", {"sleep_after": None, "keep_alive": True})
    assert (changed.value["sleep_after"], changed.value["keep_alive"]) == (None, True)
    assert rest("PATCH", "sandboxes/life", {"keep_packages": True}).code == "SANDBOX_RUNNING"
    stopped = rest("POST", "sandboxes/life/stop", {"grace": 0})
    assert (stopped.value["state"], stopped.value["health"]) == ("stopped", None)
    assert rest("PATCH", "sandboxes/life", {"keep_packages": True}).value["keep_packages"]
    for path in ("", "/processes", "/sessions", "/terminals", "/kernels", "/ports"):
        assert rest("GET", f"sandboxes/life{path}").status == 200
    assert rest("GET", "sandboxes/life/fs/stat?path=/tmp").code == "SANDBOX_NOT_RUNNING"
    assert rest("GET", "sandboxes/life").value["state"] == "stopped"
    started = rest("POST", "sandboxes/life/start")
    assert started.value["health"]["busy"] is not None
    assert rest("DELETE", "sandboxes/life").status == 204
    assert rest("DELETE", "sandboxes/life").status == 204
    assert rest("POST", "sandboxes/life/start").code == "SANDBOX_NOT_FOUND"


def test_lists_come_in_pages(rest):
    """Each item once, in order, whatever the size of a page; a cursor of elsewhere is refused."""
    names = [f"page-{at}" for at in range(3)]
    for name in names:
        assert rest("POST", "sandboxes", {"sandbox_id": name}).status == 201
        assert rest("POST", f"sandboxes/{name}/stop", {"grace": 0}).status == 200
    seen, after = [], ""
    while True:
        page = rest("GET", f"sandboxes?limit=1{after}").value
        assert len(page["sandboxes"]) == 1
        seen.append(page["sandboxes"][0]["sandbox_id"])
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert [name for name in seen if name.startswith("page-")] == names
    assert len(set(seen)) == len(seen)
    for query in ("limit=0", "limit=1001", "limit=x", "after=x", "after=W10", "limit=1&limit=2"):
        assert rest("GET", f"sandboxes?{query}").code == "VALIDATION_FAILED"
    for name in names:
        rest("DELETE", f"sandboxes/{name}")


def test_a_key_makes_one_sandbox_however_often_it_is_sent(rest):
    """The id follows from the key; at the same time, too."""
    answers = []

    def ask() -> None:
        answers.append(rest("POST", "sandboxes", {}, Idempotency_Key="k 1"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.status for each in answers) == [200, 200, 200, 201]
    [name] = {each.value["sandbox_id"] for each in answers}
    rest("DELETE", f"sandboxes/{name}")
    assert rest("POST", "sandboxes", {}, Idempotency_Key="").code == "VALIDATION_FAILED"


# --- commands ---------------------------------------------------------------------------------


def test_commands_run_to_their_end(rest):
    """In the default session's shell, without one, as words, with input, and cut off by time."""
    run = f"{BOX}/exec"
    assert rest("POST", run, {"command": "cd /tmp; export A=1; f() { echo $A; }"}).status == 200
    answer = rest("POST", run, {"command": "pwd; f; exit_code() { return 3; }; exit_code"}).value
    assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("/tmp\n1\n", "", 3)
    assert rest("POST", run, {"command": "pwd", "session": None}).value["stdout"] == "/workspace\n"
    assert rest("POST", run, {"argv": ["printf", "%s", "$A b"]}).value["stdout"] == "$A b"
    inside = {"argv": ["printenv", "A"], "session": "default"}
    assert rest("POST", run, inside).value["stdout"] == "1\n"
    odd = base64.b64encode(b"\xff\x00a").decode()
    echoed = rest("POST", run, {"argv": ["cat"], "stdin": odd, "stdin_encoding": "base64"}).value
    assert (echoed["stdout"], echoed["stdout_encoding"]) == (odd, "base64")
    assert rest("POST", run, {"argv": ["cat"], "stdin": "é"}).value["stdout"] == "é"
    late = rest("POST", run, {"argv": ["sh", "-c", "echo a; sleep 99"], "timeout": 0.3})
    assert late.status == 200
    assert (late.value["timed_out"], late.value["stdout"]) == (True, "a\n")
    much = rest("POST", run, {"argv": ["seq", "100"], "max_output": 10}).value
    assert (much["truncated"], len(much["stdout"])) == (True, 10)
    assert rest("POST", run, {"argv": ["no-such"]}).code == "COMMAND_NOT_FOUND"
    assert rest("POST", run, {"argv": []}).code == "INVALID_COMMAND"
    assert rest("POST", run, {"argv": ["a"], "command": "a"}).code == "INVALID_COMMAND"


def test_a_command_streams_as_it_runs(rest):
    """Events come when they happen, in both formats; the end is the last one."""
    body = {"command": "echo a; read line < /tmp/go; echo b >&2; exit 4", "session": None}
    assert rest("POST", f"{BOX}/exec", {"argv": ["mkfifo", "/tmp/go"]}).status == 200
    connection, answer = rest.open("POST", f"{BOX}/exec", body, Accept="text/event-stream")
    first = [answer.readline() for _ in range(4)]
    assert first[0] == b"event: output\n"
    assert first[1].startswith(b"id: ")
    assert json.loads(first[2].removeprefix(b"data: "))["data"] == "a\n"
    assert rest("POST", f"{BOX}/exec", {"argv": ["sh", "-c", "echo > /tmp/go"]}).status == 200
    rest_of_it = answer.read().decode().split("\n\n")
    connection.close()
    assert [each.split("\n")[0] for each in rest_of_it if each] == ["event: output", "event: end"]
    assert json.loads(rest_of_it[1].split("data: ")[1])["exit_code"] == 4

    events = rest.lines("POST", f"{BOX}/exec", {"argv": ["echo", "x"]})
    assert [each["event"] for each in events] == ["output", "end"]
    assert events[0]["id"] == events[0]["data"]["cursor"]
    refused = rest("POST", f"{BOX}/exec", {"argv": ["no-such"]}, Accept="text/event-stream")
    assert refused.code == "COMMAND_NOT_FOUND"


def test_text_stays_text_wherever_its_pieces_are_cut(rest):
    """A character that comes in two writes is not turned into base64, nor lost."""
    code = "import os,time\nos.write(1,b'a\\xe2\\x82'); time.sleep(.02); os.write(1,b'\\xacb')"
    events = rest.lines("POST", f"{BOX}/exec", {"argv": ["python3", "-c", code]})
    assert "".join(each["data"]["data"] for each in events[:-1]) == "a€b"
    code = "import os,time\nos.write(1,b'a\\xe2\\x82'); time.sleep(.5); os.write(1,b'\\xacb')"
    events = rest.lines("POST", f"{BOX}/exec", {"argv": ["python3", "-c", code]})
    data = b"".join(
        base64.b64decode(each["data"]["data"])
        if each["data"].get("encoding")
        else each["data"]["data"].encode()
        for each in events[:-1]
    )
    assert data == "a€b".encode()


@pytest.mark.parametrize(
    ("accept", "mark"), [("application/json", "sleep 71"), ("text/event-stream", "sleep 72")]
)
def test_who_leaves_a_command_ends_it(rest, accept, mark):
    """The connection is the command's: it is killed when that breaks, streaming or not."""
    connection = http.client.HTTPConnection("127.0.0.1", rest.server.port)
    body = json.dumps({"command": mark, "session": None})
    connection.request("POST", f"/sandbox/api/{BOX}/exec", body, {**rest.headers, "Accept": accept})
    _until(lambda: mark in _running(rest))
    connection.close()
    _until(lambda: mark not in _running(rest))


def _running(rest) -> str:
    listed = {"argv": ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]}
    return rest("POST", f"{BOX}/exec", listed).value["stdout"]


def _until(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# --- processes --------------------------------------------------------------------------------


def test_a_process_from_its_start_to_its_end(rest):
    """Started once for a key, listed, written to, read from a cursor, waited for, signalled."""
    body = {"command": "while read line; do echo got $line; done; echo end >&2", "stdin": True}
    first = rest("POST", f"{BOX}/processes", body, Idempotency_Key="p")
    again = rest("POST", f"{BOX}/processes", body, Idempotency_Key="p")
    assert (first.status, again.status) == (201, 200)
    process = f"{BOX}/processes/{first.value['process_id']}"
    assert again.value["process_id"] == first.value["process_id"]
    listed = rest("GET", f"{BOX}/processes").value["processes"]
    assert first.value["process_id"] in [each["process_id"] for each in listed]
    assert rest("POST", f"{process}/stdin", {"data": "one\n"}).status == 204
    found = rest("POST", f"{process}/wait_for_log", {"text": "got one"}).value
    assert (found["line"], found["stream"]) == ("got one", "stdout")
    read = rest("GET", f"{process}/output").value
    assert (read["stdout"], read["truncated"]) == ("got one\n", False)
    assert rest("POST", f"{process}/stdin", {"data": "two\n", "close": True}).status == 204
    ended = rest("POST", f"{process}/wait", {"timeout": 20}).value
    assert (ended["status"], ended["exit_code"]) == ("completed", 0)
    later = rest("GET", f"{process}/output?since={read['cursor']}").value
    assert (later["stdout"], later["stderr"]) == ("got two\n", "end\n")
    assert later["info"]["exit_code"] == 0
    events = rest.lines("GET", f"{process}/output?follow=true", Last_Event_ID=read["cursor"])
    assert "".join(each["data"]["data"] for each in events[:-1]) == "got two\nend\n"
    assert rest("POST", f"{process}/stdin", {"data": "x"}).code == "PROCESS_STDIN_CLOSED"

    slow = rest("POST", f"{BOX}/processes", {"argv": ["sleep", "60"]}).value["process_id"]
    assert rest("POST", f"{BOX}/processes/{slow}/wait", {"timeout": 0.05}).status == 408
    assert rest("POST", f"{BOX}/processes/{slow}/signal", {"signal": 9}).status == 204
    assert rest("POST", f"{BOX}/processes/{slow}/wait").value["signal"] == 9
    rest("POST", f"{BOX}/processes", {"argv": ["sleep", "60"]})
    assert rest("DELETE", f"{BOX}/processes").value["count"] >= 1
    assert rest("GET", f"{BOX}/processes/nope").code == "PROCESS_NOT_FOUND"


def test_ports_are_waited_for_and_exposed(rest):
    """A server of the sandbox is found, exposed under a token, and hidden again."""
    body = {"argv": ["python3", "-m", "http.server", "8123", "--bind", "127.0.0.1"]}
    process = rest("POST", f"{BOX}/processes", body).value["process_id"]
    ready = rest("POST", f"{BOX}/processes/{process}/wait_for_port", {"port": 8123, "timeout": 20})
    assert ready.value["port"] == 8123
    waited = rest("POST", f"{BOX}/ports/8123/wait", {"mode": "http", "timeout": 20}).value
    assert waited["status"] == 200
    assert [each["port"] for each in rest("GET", f"{BOX}/ports").value["ports"]] == [8123]
    assert rest("GET", f"{BOX}/ports/8123").value["addresses"]
    exposed = rest("PUT", f"{BOX}/exposed_ports/8123", {"name": "web"})
    assert exposed.status == 200
    assert exposed.value["url"].startswith("/sandbox/preview/8123-demo-")
    assert rest("GET", f"{BOX}/exposed_ports").value["exposed_ports"] == [exposed.value]
    assert rest("DELETE", f"{BOX}/exposed_ports/8123").status == 204
    assert rest("GET", f"{BOX}/exposed_ports").value["exposed_ports"] == []
    assert rest("GET", f"{BOX}/ports/80").code == "INVALID_PORT"
    assert rest("PUT", f"{BOX}/exposed_ports/x", {}).code == "VALIDATION_FAILED"
    late = rest("POST", f"{BOX}/ports/8124/wait", {"timeout": 0.05})
    assert (late.status, late.code) == (408, "PROCESS_READY_TIMEOUT")
    rest("DELETE", f"{BOX}/processes")


def test_sessions_keep_their_state(rest):
    """Made, used, given variables, listed, deleted."""
    made = rest("POST", f"{BOX}/sessions", {"session_id": "one", "cwd": "/tmp"})
    assert (made.status, made.value["cwd"]) == (201, "/tmp")
    assert rest("POST", f"{BOX}/sessions", {"session_id": "one"}).code == "SESSION_ALREADY_EXISTS"
    assert rest("PATCH", f"{BOX}/sessions/one/env", {"env": {"B": "2"}}).status == 204
    ran = rest("POST", f"{BOX}/exec", {"command": "pwd; echo $B", "session": "one"}).value
    assert ran["stdout"] == "/tmp\n2\n"
    assert rest("GET", f"{BOX}/sessions/one").value["commands"] >= 1
    assert "one" in [
        each["session_id"] for each in rest("GET", f"{BOX}/sessions").value["sessions"]
    ]
    assert rest("DELETE", f"{BOX}/sessions/one").status == 204
    assert rest("GET", f"{BOX}/sessions/one").code == "SESSION_NOT_FOUND"
    assert rest("PATCH", f"{BOX}/env", {"env": {"C": "3"}}).status == 204
    assert rest("POST", f"{BOX}/exec", {"argv": ["printenv", "C"]}).value["stdout"] == "3\n"


# --- files ------------------------------------------------------------------------------------


def test_files_are_written_and_read_as_bytes(rest):
    """Whole, in parts, and with names of any bytes; a file is no page of Jupyter's origin."""
    data = bytes(range(256)) * 9
    path = f"{BOX}/files/workspace/a/b%20%C3%A9%2Fc.bin"
    written = rest("PUT", f"{path}?mode=384", raw=data)
    assert written.status == 200
    assert (written.value["path"], written.value["size"]) == ("/workspace/a/b é/c.bin", len(data))
    assert written.value["mode"] == 0o600
    read = rest("GET", path)
    assert read.body == data
    assert read.headers["Content-Type"] == "application/octet-stream"
    assert read.headers["X-Content-Type-Options"] == "nosniff"
    assert rest("GET", path, Range="bytes=5-9").body == data[5:10]
    part = rest("GET", path, Range="bytes=-7")
    assert (part.status, part.body) == (206, data[-7:])
    assert part.headers["Content-Range"] == f"bytes {len(data) - 7}-{len(data) - 1}/{len(data)}"
    assert rest("GET", path, Range="bytes=999999-").status == 416
    assert rest("GET", path, Range="lines=1-2").status == 200
    seen = rest("HEAD", path)
    assert (seen.status, seen.headers["Content-Length"]) == (200, str(len(data)))
    assert rest("PUT", f"{path}?overwrite=false", raw=b"x").code == "FILE_EXISTS"
    odd = f"{BOX}/files/workspace/%FF%FE"
    assert rest("PUT", odd, raw=b"odd").status == 200
    assert rest("GET", odd).body == b"odd"
    assert rest("GET", f"{BOX}/fs/stat?path=/workspace/%FF%FE").value["path"][-1] == "\udcfe"
    assert rest("DELETE", odd).status == 204
    assert rest("GET", odd).code == "FILE_NOT_FOUND"
    empty = f"{BOX}/files/tmp/empty"
    assert rest("PUT", empty, raw=b"").value["size"] == 0
    assert rest("GET", empty).body == b""
    assert rest("GET", f"{BOX}/files/proc/self/status").body.startswith(b"Name:")
    assert rest("GET", f"{BOX}/files/tmp").code == "IS_DIRECTORY"
    assert rest("HEAD", f"{BOX}/files/tmp").status == 400


def test_folders_are_made_listed_changed_and_removed(rest):
    """Each operation on names, and listings in pages or as they are read."""
    base = "/workspace/tree"
    fs = f"{BOX}/fs"
    assert rest("POST", f"{fs}/mkdir", {"path": f"{base}/sub", "parents": True}).status == 204
    assert rest("POST", f"{fs}/mkdir", {"path": f"{base}/sub"}).code == "FILE_EXISTS"
    for at in range(5):
        rest("PUT", f"{BOX}/files{base}/f{at}", raw=b"x" * at)
    first = rest("GET", f"{fs}/list?path={base}&limit=4").value
    assert [each["path"] for each in first["entries"]] == ["f0", "f1", "f2", "f3"]
    second = rest("GET", f"{fs}/list?path={base}&limit=4&after={first['next']}").value
    assert ([each["path"] for each in second["entries"]], second["next"]) == (["f4", "sub"], None)
    events = rest.lines("GET", f"{fs}/list?path={base}")
    assert events[-1]["data"]["count"] == 6
    assert (
        rest("POST", f"{fs}/rename", {"path": f"{base}/f0", "new_path": f"{base}/g"}).status == 204
    )
    moved = rest("POST", f"{fs}/move", {"path": f"{base}/g", "new_path": f"{base}/sub"}).value
    assert moved["path"] == f"{base}/sub/g"
    link = {"path": f"{base}/link", "target": "sub"}
    assert rest("POST", f"{fs}/symlink", link).status == 204
    stat = rest("GET", f"{fs}/stat?path={base}/link&follow_symlinks=false").value
    assert (stat["type"], stat["target"]) == ("symlink", "sub")
    assert rest("POST", f"{fs}/chmod", {"path": f"{base}/f1", "mode": 0o640}).status == 204
    assert rest("GET", f"{fs}/stat?path={base}/f1").value["mode"] == 0o640
    assert rest("GET", f"{fs}/exists?path={base}/nope").value == {"exists": False}
    version = rest("GET", f"{fs}/changes?path={base}").value["version"]
    assert rest("GET", f"{fs}/changes?path={base}&since={version}").value["status"] == "unchanged"
    assert rest("DELETE", f"{BOX}/files{base}").code == "IS_DIRECTORY"
    assert rest("DELETE", f"{BOX}/files{base}?recursive=true").status == 204
    assert rest("GET", f"{fs}/list?path={base}").code == "FILE_NOT_FOUND"


def test_a_folder_travels_as_a_tar_archive(rest):
    """What comes out is a whole archive; put in again it is the same folder."""
    buffer = io.BytesIO()
    big = bytes(range(256)) * 8192 + b"end"
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in (("a/b.txt", b"text"), ("big", big), ("é\udcff", b""), ("n" * 150, b"1")):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o750
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("a/link")
        link.type, link.linkname = tarfile.SYMTYPE, "b.txt"
        tar.addfile(link)
    put = rest("PUT", f"{BOX}/fs/archive?path=/workspace/tar", raw=buffer.getvalue())
    assert put.value == {"files": 4, "folders": 0, "links": 1, "bytes": len(big) + 5}
    got = rest("GET", f"{BOX}/fs/archive?path=/workspace/tar")
    assert got.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(got.body), errors="surrogateescape") as tar:
        found = {each.name: each for each in tar}
        assert set(found) == {"a", "a/b.txt", "a/link", "big", "é\udcff", "n" * 150}
        assert tar.extractfile("big").read() == big
        assert (found["a/b.txt"].mode, found["a/link"].linkname) == (0o750, "b.txt")


def test_a_watch_tells_what_changes(rest):
    """Set up before it says so; each change is an event."""
    rest("POST", f"{BOX}/fs/mkdir", {"path": "/workspace/watched", "parents": True})
    connection, answer = rest.open("GET", f"{BOX}/fs/watch?path=/workspace/watched")
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert json.loads(answer.readline())["data"]["type"] == "watching"
    rest("PUT", f"{BOX}/files/workspace/watched/new", raw=b"1")
    while True:
        line = answer.readline()
        if line.strip() and (json.loads(line)["data"]["path"] or "").endswith("/new"):
            break
    connection.close()


def test_a_repository_is_cloned(rest):
    """With its progress, or with its end alone; what cannot be is refused."""
    script = (
        "cd /tmp && git init -q -b main r && cd r && echo a > f && git add f &&"
        " git -c user.name=n -c user.email=e@x commit -q -m m"
    )
    assert rest("POST", f"{BOX}/exec", {"command": script, "session": None}).value["exit_code"] == 0
    body = {"url": "file:///tmp/r", "target_dir": "/workspace/clone"}
    made = rest("POST", f"{BOX}/git/checkout", body)
    assert (made.status, made.value["branch"]) == (201, "main")
    events = rest.lines("POST", f"{BOX}/git/checkout", {**body, "target_dir": "/workspace/c2"})
    assert events[-1]["event"] == "end"
    assert rest("POST", f"{BOX}/git/checkout", {"url": "nothing"}).code == "INVALID_GIT_URL"


def test_kernels_and_terminals_are_listed(rest):
    """Nothing is there that nobody has started."""
    assert rest("GET", f"{BOX}/kernels").value == {"kernels": [], "next": None}
    assert rest("GET", f"{BOX}/terminals").value == {"terminals": [], "next": None}
