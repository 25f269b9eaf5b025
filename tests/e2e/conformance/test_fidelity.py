"""Small observations of a kernel which must come out the same as on a plain ipykernel.

Each function looks at one behaviour through messages only and returns what it saw, without times,
ids and machine names.  The test runs it on both kernels in one run and compares; where ours must
be different, the test says what it must be and why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL, Kernel, kinds_of
from tests.support.zmq_connection import ZmqConnection

pytestmark = pytest.mark.usefixtures("trusted_outputs")

Seen = Any
Look = Callable[[Kernel], Seen]
LOOKS: list[Look] = []

COMPLETE = {"code": "print", "cursor_pos": 5}


def look(function: Look) -> Look:
    LOOKS.append(function)
    return function


@look
def kernel_info(k: Kernel) -> Seen:
    info = k.ask("kernel_info_request")
    kept = ("supported_features", "implementation", "protocol_version", "language_info", "debugger")
    return {key: info.get(key) for key in kept}, bool(info["banner"]), sorted(info)


@look
def result_and_display(k: Kernel) -> Seen:
    cell = k.cell("print(1); display(2); 3")
    return cell.kinds, cell.text, cell.displays, cell.result, sorted(cell.content)


@look
def display_and_update(k: Kernel) -> Seen:
    cell = k.cell(
        "from IPython.display import HTML\n"
        "h = display(HTML('<b>x</b>'), display_id='fixed'); h.update(HTML('y'), metadata={'a': 1})"
    )
    return [(m["header"]["msg_type"], m["content"]) for m in cell.iopub[2:-1]]


@look
def clear_output(k: Kernel) -> Seen:
    cell = k.cell(
        "from IPython.display import clear_output\nprint(1); clear_output(wait=True); print(2)"
    )
    return cell.kinds, [m["content"] for m in cell.of_type("clear_output")]


@look
def error_of_a_cell(k: Kernel) -> Seen:
    cell = k.cell("def f(x):\n    return 1 / x\nf(0)")
    error = cell.of_type("error")[0]["content"]
    reply = {
        key: value for key, value in cell.content.items() if key in ("status", "ename", "evalue")
    }
    lines = [line for frame in error["traceback"] for line in frame.splitlines() if "1 / x" in line]
    return cell.kinds, reply, error["ename"], error["evalue"], lines


@look
def syntax_error(k: Kernel) -> Seen:
    cell = k.cell("x = = 1")
    return cell.kinds, cell.content["ename"], cell.content["evalue"]


@look
def silent_cell(k: Kernel) -> Seen:
    cell = k.cell("print(1); 5", silent=True)
    return cell.kinds, cell.text, cell.status


@look
def silent_failure(k: Kernel) -> Seen:
    cell = k.cell("1/0", silent=True)
    return cell.kinds, cell.status


@look
def execution_counts(k: Kernel) -> Seen:
    counts = [
        k.cell("1", store_history=store).content["execution_count"]
        for store in (True, False, True, True)
    ]
    return [count - counts[0] for count in counts]


@look
def user_expressions(k: Kernel) -> Seen:
    told = k.cell("z = 3", user_expressions={"a": "z+1", "b": "1/0"}).content["user_expressions"]
    return told["a"], {key: value for key, value in told["b"].items() if key != "traceback"}


@look
def stop_on_error_aborts_the_queue(k: Kernel) -> Seen:
    first = k.execute("import time; time.sleep(.3); 1/0")
    second = k.execute("1")
    first.wait()
    second.wait()
    k.drain(0.2)
    return first.status, second.status, second.kinds, k.cell("1").status


@look
def stop_on_error_off_goes_on(k: Kernel) -> Seen:
    first = k.execute("import time; time.sleep(.3); 1/0", stop_on_error=False)
    second = k.execute("1")
    return first.wait().status, second.wait().status, second.kinds


@look
def input_and_getpass(k: Kernel) -> Seen:
    seen = []
    for code in ("input('q? ')", "import getpass; getpass.getpass('pw: ')"):
        cell = k.execute(code, allow_stdin=True)
        asked = cell.wait_for_input()
        k.answer(cell, "yo")
        cell.wait()
        seen.append((asked["content"]["password"], cell.status, cell.result, cell.kinds))
    return seen


@look
def two_inputs_in_one_cell(k: Kernel) -> Seen:
    cell = k.execute("a = input('a'); b = input('b'); a + b", allow_stdin=True)
    for count, value in enumerate("xy", start=1):
        cell.wait_for_input(count)
        k.answer(cell, value)
    return cell.wait().result


@look
def input_refused(k: Kernel) -> Seen:
    cell = k.cell("input('x')", allow_stdin=False)
    return cell.content["ename"], cell.content["evalue"]


@look
def input_of_an_awaited_cell(k: Kernel) -> Seen:
    cell = k.execute("import asyncio; await asyncio.sleep(0); input('q')", allow_stdin=True)
    cell.wait_for_input()
    k.answer(cell, "v")
    return cell.wait().result


@look
def debugger_of_ipython(k: Kernel) -> Seen:
    seen = []
    for code, commands in (
        (
            "def g():\n    v = 41\n    import pdb; pdb.set_trace()\n    return v + 1\ng()",
            ("p v", "c"),
        ),
        ("def h(n):\n    return 1 / n\nh(0)", ()),
        ("%debug", ("p n", "q")),
    ):
        cell = k.execute(code, allow_stdin=True)
        prompts = []
        for count, command in enumerate(commands, start=1):
            prompts.append(cell.wait_for_input(count)["content"]["prompt"].strip())
            k.answer(cell, command)
        cell.wait()
        seen.append((prompts, cell.status, cell.result, [n for n in ("41", "0") if n in cell.text]))
    return seen


@look
def completion(k: Kernel) -> Seen:
    k.cell("import os; mine = {'first key': 1}")
    seen = []
    for code in ("os.path.jo", "mine['fir", "%matplotl", "open('/et"):
        told = k.ask("complete_request", code=code, cursor_pos=len(code))
        span = (told["cursor_start"], told["cursor_end"])
        types = told["metadata"].get("_jupyter_types_experimental")
        seen.append((told["matches"][:3], span, types[:3] if types else types))
    return seen


@look
def inspection(k: Kernel) -> Seen:
    k.cell("def documented(a, b=1):\n    'What it does.'")
    seen = []
    for detail in (0, 1):
        told = k.ask("inspect_request", code="documented", cursor_pos=4, detail_level=detail)
        seen.append(
            (told["found"], sorted(told["data"]), "What it does." in told["data"]["text/plain"])
        )
    missing = k.ask("inspect_request", code="no_such_name", cursor_pos=3, detail_level=0)
    return seen, missing["found"]


@look
def is_complete(k: Kernel) -> Seen:
    codes = ("for i in x:", "1", "x = = 1", "def f():\n  return 1\n\n", "'''open", "%%time", "!ls")
    return [k.ask("is_complete_request", code=code) for code in codes]


@look
def history(k: Kernel) -> Seen:
    k.cell("'history one'")
    k.cell("'history two'")
    tail = k.ask("history_request", hist_access_type="tail", n=2, raw=True, output=False)
    found = k.ask(
        "history_request",
        hist_access_type="search",
        pattern="*history*",
        n=9,
        raw=True,
        output=False,
        unique=True,
    )
    return [h[2] for h in tail["history"]], [h[2] for h in found["history"]]


@look
def interrupt_of_a_sleep(k: Kernel) -> Seen:
    # A plain kernel loses an interrupt that comes between its execute_input and the code.
    cell = k.execute("print('go', flush=True); import time; time.sleep(30)")
    cell.wait_for_text("go")
    k.interrupt()
    cell.wait(10)
    return cell.content["ename"], cell.kinds, time.monotonic() - cell.sent_at < 5


@look
def interrupt_by_message(k: Kernel) -> Seen:
    # A plain kernel loses an interrupt that comes between its execute_input and the code.
    cell = k.execute("print('go', flush=True); import time; time.sleep(30)")
    cell.wait_for_text("go")
    asked = k.request("interrupt_request", channel="control")
    asked.wait(10)
    cell.wait(10)
    return asked.content, asked.kinds, cell.content["ename"]


@look
def interrupt_of_a_command(k: Kernel) -> Seen:
    cell = k.execute("!echo started; sleep 30")
    cell.wait_for_text("started")
    k.interrupt()
    cell.wait(10)
    return time.monotonic() - cell.sent_at < 8


@look
def control_answers_while_a_cell_runs(k: Kernel) -> Seen:
    cell = k.execute("import time; time.sleep(1.5)")
    cell.wait_for("execute_input")
    asked = k.request("kernel_info_request", channel="control")
    k.wait_until(lambda: asked.reply is not None, 5, "the reply on control")
    early = cell.reply is None
    cell.wait()
    return early, asked.content["status"], asked.kinds


@look
def subshells(k: Kernel) -> Seen:
    subshell = k.ask_control("create_subshell_request")["subshell_id"]
    # The first completion of a kernel loads its library, which takes seconds on a busy machine.
    k.request("complete_request", COMPLETE, subshell=subshell).wait()
    main = k.execute("import time; time.sleep(4)")
    main.wait_for("execute_input")
    beside = k.execute("6*7", subshell=subshell).wait()
    completed = k.request("complete_request", COMPLETE, subshell=subshell).wait()
    early = main.reply is None
    listed = k.ask_control("list_subshell_request")["subshell_id"]
    deleted = k.ask_control("delete_subshell_request", subshell_id=subshell)
    main.wait()
    left = k.ask_control("list_subshell_request")["subshell_id"]
    return early, beside.result, completed.content["matches"], listed == [subshell], deleted, left


@look
def completion_waits_for_a_cell_on_the_main_shell(k: Kernel) -> Seen:
    cell = k.execute("import time; time.sleep(1)")
    cell.wait_for("execute_input")
    completed = k.request("complete_request", COMPLETE).wait()
    return cell.reply is not None, completed.content["matches"]


@look
def comm_of_the_kernel(k: Kernel) -> Seen:
    opened = k.cell(
        "from comm import create_comm\n"
        "c = create_comm(target_name='t', data={'a': 1}, buffers=[b'raw'])\n"
        "@c.on_msg\ndef _(m): c.send(m['content']['data'], buffers=m['buffers'])"
    ).of_type("comm_open")[0]
    comm_id = opened["content"]["comm_id"]
    sent = [b"\x00\x01" * 1000, b"", b"zz"]
    message = k.request(
        "comm_msg", {"comm_id": comm_id, "data": {"x": [1, None, "ä"]}}, buffers=sent
    )
    k.wait_until(lambda: message.is_idle, 5, "the echo")
    echo = message.of_type("comm_msg")[0]
    listed = k.ask("comm_info_request", target_name="t")["comms"]
    closed = k.cell("c.close()").kinds
    return (
        (
            opened["content"]["data"],
            [bytes(b) for b in opened["buffers"]],
            opened["content"]["target_name"],
        ),
        (echo["content"]["data"], [bytes(b) for b in echo["buffers"]] == sent, message.kinds),
        (list(listed.values()), closed),
    )


@look
def comm_of_the_client(k: Kernel) -> Seen:
    k.cell(
        "def opened(comm, message):\n"
        "    comm.send({'hello': message['content']['data']})\n"
        "get_ipython().kernel.comm_manager.register_target('mine', opened)"
    )
    opened = k.request("comm_open", {"comm_id": "c1", "target_name": "mine", "data": {"n": 1}})
    k.wait_until(lambda: opened.is_idle, 5, "the greeting")
    unknown = k.request("comm_open", {"comm_id": "c2", "target_name": "nobody", "data": {}})
    k.wait_until(lambda: unknown.is_idle, 5, "the refusal")
    closed = k.request("comm_close", {"comm_id": "c1", "data": {}})
    k.wait_until(lambda: closed.is_idle, 5, "the end")
    answers = [m["content"]["data"] for m in opened.of_type("comm_msg")]
    return opened.kinds, answers, [kind for kind in unknown.kinds if kind != "stderr"], closed.kinds


@look
def a_widget_is_moved(k: Kernel) -> Seen:
    shown = k.cell(
        "import ipywidgets as w\n"
        "s = w.IntSlider(value=3)\n"
        "s.observe(lambda change: print('now', change.new), 'value')\n"
        "display(s)",
        60,
    )
    comm_id = k.value("s.comm.comm_id")
    state = {"method": "update", "state": {"value": 7}, "buffer_paths": []}
    moved = k.request("comm_msg", {"comm_id": comm_id, "data": state})
    k.wait_until(lambda: moved.is_idle, 5, "the handler")
    mimes = [sorted(data) for data in shown.displays]
    return shown.kinds, mimes, moved.kinds, moved.text, k.value("s.value")


@look
def an_output_widget_captures(k: Kernel) -> Seen:
    shown = k.cell(
        "import ipywidgets as w\nout = w.Output()\nwith out: print('inside')\nprint('outside')", 60
    )
    return shown.kinds


@look
def the_debugger_stops_at_breakpoints(k: Kernel) -> Seen:
    numbers = iter(range(1, 100))

    def debug(command: str, **arguments: Any) -> Any:
        return k.ask_control(
            "debug_request", type="request", seq=next(numbers), command=command, arguments=arguments
        )

    def stop(path: str, line: int, code: str) -> Seen:
        debug(
            "setBreakpoints",
            breakpoints=[{"line": line}],
            source={"path": path},
            sourceModified=False,
        )
        debug("configurationDone")
        before = len(events(k))
        cell = k.execute(code)
        k.wait_until(
            lambda: "stopped" in [m["content"]["event"] for m in events(k)[before:]], 15, "a stop"
        )
        (event,) = (m["content"] for m in events(k)[before:] if m["content"]["event"] == "stopped")
        thread = event["body"]["threadId"]
        frames = debug("stackTrace", threadId=thread)["body"]["stackFrames"]
        scopes = debug("scopes", frameId=frames[0]["id"])["body"]["scopes"]
        variables = debug("variables", variablesReference=scopes[0]["variablesReference"])["body"][
            "variables"
        ]
        debug("continue", threadId=thread)
        cell.wait()
        return (
            (event["body"]["reason"], [(f["name"], f["line"]) for f in frames]),
            [(v["name"], v["value"]) for v in variables if v["name"] in "ab"],
            (cell.status, cell.result),
        )

    # Imported before anybody debugs.
    k.cell("%%writefile mine.py\ndef g(a):\n    b = a * 3\n    return b")
    module = k.value("__import__('mine').__file__")
    info = debug("debugInfo")
    started = debug(
        "initialize",
        clientID="t",
        clientName="t",
        adapterID="",
        pathFormat="path",
        linesStartAt1=True,
        columnsStartAt1=True,
        supportsVariableType=True,
        supportsVariablePaging=True,
        supportsRunInTerminalRequest=True,
        locale="en",
    )
    attached = debug("attach")
    code = "def f(a):\n    b = a + 1\n    return b\nf(2)"
    path = debug("dumpCell", code=code)["body"]["sourcePath"]
    seen = [stop(path, 2, code), stop(module, 3, "import mine; mine.g(5)")]
    ended = debug("disconnect", restart=False, terminateDebuggee=False)
    flags = (info["success"], started["success"], attached["success"], ended["success"])
    return flags, sorted(info["body"]), seen


def events(k: Kernel) -> list[Any]:
    return [m for m in k.log if m["header"]["msg_type"] == "debug_event"]


@look
def the_debugger_lists_variables_without_a_breakpoint(k: Kernel) -> Seen:
    k.cell("looked_at = [1, 2, 3]")
    told = k.ask_control(
        "debug_request", type="request", seq=1, command="inspectVariables", arguments={}
    )
    found = [v for v in told["body"]["variables"] if v["name"] == "looked_at"]
    return told["success"], [(v["name"], v["value"], v["type"]) for v in found]


@look
def a_second_client(k: Kernel) -> Seen:
    connection = k.connection
    assert isinstance(connection, ZmqConnection)
    with connection.second_client() as other:
        second = Kernel(other)
        second.become_ready()
        mine = k.cell("print('both')")
        second.drain(0.2)
        seen = kinds_of(m for m in second.strays if m["parent_header"].get("msg_id") == mine.msg_id)
        asking = second.execute("input('k2')", allow_stdin=True)
        asking.wait_for_input()
        k.drain(0.2)
        leaked = [
            m
            for m in k.log
            if m["channel"] == "stdin" and m["parent_header"].get("msg_id") == asking.msg_id
        ]
        second.answer(asking, "for the second")
        asking.wait()
        return seen, leaked, asking.result


@look
def output_of_children_and_c(k: Kernel) -> Seen:
    cell = k.cell(
        "import os, subprocess, ctypes\n"
        "subprocess.run(['sh', '-c', 'echo child; echo wrong >&2'])\n"
        "os.system('echo system'); os.write(1, b'written\\n')\n"
        "c = ctypes.CDLL(None); c.puts(b'from c'); c.fflush(None); None"
    )
    return sorted(cell.stream("stdout").split("\n")), cell.stream("stderr")


@look
def threads_print_where_plain_prints(k: Kernel) -> Seen:
    first = k.cell(
        "import threading, time\n"
        "def f():\n    print('at once', flush=True)\n    go.wait(5); print('later', flush=True)\n"
        "go = threading.Event(); t = threading.Thread(target=f); t.start(); time.sleep(.1)"
    )
    second = k.cell("go.set(); t.join(); print('second')")
    k.drain(0.3)
    return first.text, second.text


@look
def payloads(k: Kernel) -> Seen:
    page = k.cell("zip?").content["payload"]
    load = k.cell("get_ipython().set_next_input('x = 1')").content["payload"]
    return [(p["source"], sorted(p["data"])) for p in page], len(load) <= 1


@look
def awaited_cells(k: Kernel) -> Seen:
    cell = k.cell("import asyncio; print(1); await asyncio.sleep(.01); 9")
    failed = k.cell("async def f():\n    raise ValueError('x')\nawait f()")
    task = k.cell(
        "async def g():\n    await asyncio.sleep(.1); print('task')\nt = asyncio.create_task(g())"
    )
    k.cell("await t")
    return cell.kinds, cell.result, failed.content["ename"], task.kinds


@look
def cell_magics(k: Kernel) -> Seen:
    seen = []
    for code in (
        "%%bash\necho hi; echo no >&2; exit 3",
        "%%capture got\nprint('kept')",
        "print(repr(got.stdout))",
        "%%html\n<i>x</i>",
        "%%javascript\nvar a = 1",
        "%%markdown\n*m*",
        "%%sh\necho sh",
        "%%script cat\nfed",
        "x = !echo one; echo two\nprint(x)",
        "%env E2E_PROBE=1",
        "%who_ls str",
    ):
        cell = k.cell(code)
        seen.append((cell.status, cell.text, [sorted(data) for data in cell.displays]))
    return seen


@look
def logging_and_warnings(k: Kernel) -> Seen:
    cell = k.cell(
        "import logging, warnings, sys\n"
        "logging.warning('careful'); warnings.warn('old', stacklevel=1)\n"
        "print('e', file=sys.stderr, end='')"
    )
    return [
        "careful" in cell.stream("stderr"),
        "UserWarning: old" in cell.stream("stderr"),
        cell.stream("stdout"),
    ]


@look
def stdout_objects(k: Kernel) -> Seen:
    return k.value(
        "(sys := __import__('sys')) and [sys.stdout.encoding, sys.stdout.isatty(), sys.stdout.writable(), "
        "sys.stdout.fileno() >= 0, type(sys.stdin).__name__, sys.stdout.errors, sys.stdout.name]"
    )


@look
def names_and_arguments(k: Kernel) -> Seen:
    return k.value(
        "[__name__, '__file__' in globals(), __import__('sys').path[0], 'get_ipython' in dir(), "
        "__import__('sys').flags.isolated, __import__('os').environ.get('TERM'), "
        "__import__('os').environ.get('MPLBACKEND'), __import__('os').environ.get('PYTHONPATH')]"
    )


@look
def usage(k: Kernel) -> Seen:
    # The first answer has no processor time yet, unless somebody asked before.
    k.ask_control("usage_request")
    k.cell("sum(range(10**6))")
    return sorted(k.ask_control("usage_request"))


@look
def requests_out_of_place(k: Kernel) -> Seen:
    unknown = k.request("no_such_request")
    k.drain(0.3)
    return unknown.reply is None, k.cell("1").status


@look
def thirty_cells_in_order(k: Kernel) -> Seen:
    cells = [k.execute(f"print({n}); display({n}); {n}") for n in range(30)]
    for cell in cells:
        cell.wait()
    return [(cell.kinds, cell.text, cell.result) for cell in cells]


@look
def long_line_of_text(k: Kernel) -> Seen:
    return len(k.cell("print('x' * 3_000_000)").text)


@look
def pretty_printing(k: Kernel) -> Seen:
    return [
        k.cell(code).result
        for code in (
            "list(range(2000))",
            "{'a': {1, 2}}",
            "'x' * 10",
            "None",
            "1;",
            "object",
            "b'\\xff'",
            "1e300 * 10",
        )
    ]


@pytest.fixture(scope="module")
def pair(new_home: Callable[[], JupyterHome]) -> Iterator[tuple[Kernel, Kernel]]:
    """A plain kernel and ours, both used by all looks in the same order."""
    with (
        Kernel(ZmqConnection("python3", new_home())) as plain,
        Kernel(ZmqConnection(KERNEL, new_home())) as ours,
    ):
        plain.become_ready()
        ours.become_ready()
        yield plain, ours


@pytest.mark.parametrize("function", LOOKS, ids=lambda function: function.__name__)
def test_it_behaves_as_a_plain_kernel(pair: tuple[Kernel, Kernel], function: Look) -> None:
    """What a client sees is what it sees of a local ipykernel."""
    expected, seen = (function(kernel) for kernel in pair)

    assert seen == expected
