"""Output of the interpreter inside: all of it, in order, once, and before the end of its cell."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.kernel_driver import Kernel


def test_nothing_comes_after_idle(kernel: Kernel) -> None:
    """Streams, displays and results of 100 cells come between busy and idle, none is missing."""
    for _ in range(100):
        request = kernel.cell(
            "print('a' * 1000); import sys; print('b', file=sys.stderr); display(1); 2"
        )
        assert request.kinds == [
            "busy",
            "execute_input",
            "stdout",
            "stderr",
            "display_data",
            "execute_result",
            "idle",
        ]
        assert request.stream("stdout") == "a" * 1000 + "\n"
    kernel.drain(0.1)
    assert not kernel.strays or all(m["header"]["msg_type"] == "status" for m in kernel.strays)


def test_output_of_children_never_comes_after_idle(kernel: Kernel) -> None:
    """What a child wrote to its descriptors before the cell ended belongs to the cell, 200 times."""
    kernel.cell("import os, subprocess")
    for i in range(200):
        code = f"os.system('echo {i}')" if i % 2 else f"os.write(1, b'{i}\\n'); None"
        request = kernel.cell(code)
        assert request.text == f"{i}\n"
        assert request.kinds[-1] == "idle"
        assert "stdout" in request.kinds


def test_a_child_writes_where_the_cell_prints(kernel: Kernel) -> None:
    """Descriptors 1 and 2, and the file number of sys.stdout, lead into the cell."""
    request = kernel.cell(
        "import subprocess, sys\n"
        "subprocess.run(['sh', '-c', 'echo out; echo err >&2'])\n"
        "subprocess.run(['echo', 'given'], stdout=sys.stdout)"
    )
    assert request.stream("stdout") == "out\ngiven\n"
    assert request.stream("stderr") == "err\n"


def test_a_c_write_that_holds_the_lock(kernel: Kernel) -> None:
    """C code that writes more than a pipe's 64 KiB while no thread can run does not hang."""
    request = kernel.cell(
        "import ctypes; l = ctypes.PyDLL(None); l.printf(b'1' * 100000); l.fflush(None); print('after')",
        5.0,
    )
    assert request.text.count("1") == 100_000
    assert "after" in request.text


def test_a_slow_client_of_all_that_can_print_at_once(kernel: Kernel) -> None:
    """The main thread, another one and a child fill the queue together, and none waits for ever."""
    request = kernel.execute(
        "import subprocess, threading, time\n"
        "child = subprocess.Popen('yes | head -c 6000000', shell=True)\n"
        "def more():\n    for _ in range(100): print('z' * 60_000)\n"
        "thread = threading.Thread(target=more); thread.start()\n"
        "for _ in range(100): print('x' * 60_000); time.sleep(.0003)\n"
        "thread.join(); child.wait()"
    )
    time.sleep(0.5)  # so that the queue is full; the kernel is not heard meanwhile
    request.wait(20)

    assert request.status == "ok"
    assert (request.text.count("x"), request.text.count("z")) == (6_000_000, 6_000_000)
    assert request.text.count("y") == 3_000_000


def test_text_of_threads_has_a_parent(kernel: Kernel) -> None:
    """Text of a thread goes to the cell that ran last; nothing is lost or without a parent."""
    first = kernel.cell(
        "import threading, time, os\n"
        "def f():\n"
        "    for i in range(6):\n"
        "        time.sleep(0.05); print('t', i, flush=True)\n"
        "    os.system('echo x')\n"
        "t = threading.Thread(target=f); t.start()"
    )
    second = kernel.cell("time.sleep(0.12); print('two')")
    third = kernel.cell("t.join()")
    text = first.text + second.text + third.text
    assert [f"t {i}\n" in text for i in range(6)] == [True] * 6
    assert "x\n" in text
    assert "two\n" in second.text


def test_text_of_a_thread_goes_to_the_cell_that_ran_last(kernel: Kernel) -> None:
    """Not to the one that started it; and so does what its children write."""
    first = kernel.cell(
        "import threading, os\n"
        "started, go = threading.Event(), threading.Event()\n"
        "def f():\n"
        "    print('early', flush=True); started.set(); go.wait(10)\n"
        "    print('late', flush=True); os.system('echo child')\n"
        "t = threading.Thread(target=f); t.start(); started.wait()"
    )
    second = kernel.cell("go.set(); t.join()")

    assert first.text == "early\n"
    assert second.text == "late\nchild\n"


def test_carriage_returns_are_kept(kernel: Kernel) -> None:
    """Neither a cell's nor a command's carriage returns are touched, and none is added."""
    request = kernel.cell(
        "import time\nfor i in range(5): print(f'\\r{i*25}%', end='', flush=True); time.sleep(0.02)"
    )
    assert request.text == "\r0%\r25%\r50%\r75%\r100%"
    request = kernel.cell("!printf '10%%\\r'; sleep 0.1; printf '20%%\\r'; printf 'done\\n'")
    assert request.text == "10%\r20%\rdone\n"


def test_updated_displays(kernel: Kernel) -> None:
    """Each update of a display names it."""
    shown = kernel.cell("from IPython.display import display; h = display('v1', display_id=True)")
    display_id = shown.of_type("display_data")[0]["content"]["transient"]["display_id"]
    updates = kernel.cell("for i in range(100): h.update(i)").of_type("update_display_data")
    assert [u["content"]["data"]["text/plain"] for u in updates] == [str(i) for i in range(100)]
    assert {u["content"]["transient"]["display_id"] for u in updates} == {display_id}


def test_clear_output_keeps_its_place(kernel: Kernel) -> None:
    """Text before clear_output is sent before it."""
    request = kernel.cell(
        "from IPython.display import clear_output\nprint(1); clear_output(wait=True); print(2)"
    )
    assert request.kinds == ["busy", "execute_input", "stdout", "clear_output", "stdout", "idle"]


@pytest.mark.parametrize("kind", ["json", "text", "picture"])
def test_twelve_megabytes_arrive_whole(kernel: Kernel, kind: str) -> None:
    """One large output is carried like a small one."""
    code, size = {
        "json": ("display({'application/json': {'d': 'x' * 12_000_000}}, raw=True)", 12_000_000),
        "text": ("print('y' * 12_000_000)", 12_000_001),
        "picture": (
            "import os; from IPython.display import Image; Image(data=b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(9_000_000))",
            12_000_000,
        ),
    }[kind]
    request = kernel.cell(code)
    if kind == "text":
        assert len(request.text) == size
        assert max(len(m["content"]["text"]) for m in request.of_type("stream")) <= 256 << 10
    else:
        found = request.displays or [request.of_type("execute_result")[0]["content"]["data"]]
        assert len(str(found[0])) >= size


def test_text_is_cut_between_characters(kernel: Kernel) -> None:
    """A long text is sent in pieces, each of whole characters."""
    request = kernel.cell("print('\\U0001f600' * 300_000, end='')")
    assert request.text == "\U0001f600" * 300_000
    assert len(request.of_type("stream")) > 1


def test_a_flood_keeps_its_order(kernel: Kernel) -> None:
    """100 000 lines arrive in order, with displays in their places."""
    request = kernel.cell(
        "for i in range(100_000):\n    print(i)\n    if i % 10_000 == 0: display(i)"
    )
    assert request.text == "".join(f"{i}\n" for i in range(100_000))
    assert [d["text/plain"] for d in request.displays] == [
        str(i) for i in range(0, 100_000, 10_000)
    ]


def test_a_slow_reader_makes_the_cell_wait(kernel: Kernel) -> None:
    """Output that nobody reads stops the cell, and nothing of it is lost."""
    request = kernel.execute("for i in range(30): print('z' * 1_000_000)\nprint('end')")
    kernel.wait_until(lambda: "z" in request.text, 10.0, "the first megabyte")
    memory = f"/proc/{kernel.connection.pid}/status"
    with open(memory) as status:
        peak = int(next(line for line in status if line.startswith("VmHWM")).split()[1])
    request.wait()
    assert request.text.count("z") == 30_000_000
    assert peak > 0


def test_pictures_of_matplotlib(kernel: Kernel) -> None:
    """The inline backend is there without asking, and can be configured."""
    first = kernel.cell(
        "%matplotlib inline\nimport matplotlib.pyplot as plt; plt.plot([1, 2])", 60.0
    )
    assert len(first.displays[0]["image/png"]) > 1000
    second = kernel.cell("fig = plt.figure(); plt.plot([3]); plt.show(); print('x')")
    assert second.kinds.index("display_data") < second.kinds.index("stdout")
    third = kernel.cell("%config InlineBackend.figure_formats = ['svg']\nplt.plot([1])")
    assert "image/svg+xml" in third.displays[0]


def test_magics_and_commands(kernel: Kernel) -> None:
    """Cell magics and commands work; a command's status is kept."""
    assert "hi" in kernel.cell("%%bash\necho hi").text
    assert "Wall time" in kernel.cell("%%time\n1").text
    assert kernel.cell("%%capture c\nprint('kept')").text == ""
    assert kernel.cell("c.stdout").result == "'kept\\n'"
    kernel.cell("!exit 3")
    assert kernel.cell("_exit_code").result == "3"
    kernel.cell("!kill -9 $$")
    assert kernel.cell("_exit_code").result == "-9"
    assert kernel.cell("x = !echo a; echo b\nx").result == "['a', 'b']"
    assert "pip" in kernel.cell("%pip --version", 60.0).text
    assert kernel.cell("!python -c 'import sys; print(sys.stdout.isatty())'").text == "True\n"


def test_a_command_that_leaves_something_behind_ends(kernel: Kernel) -> None:
    """A command is over when its shell is, though what it started still holds the terminal."""
    assert kernel.cell("!sleep 5 & echo started", 3.0).text == "started\n"
    assert kernel.cell("!(yes; true) & echo started; sleep 0.1", 10.0).status == "ok"


@pytest.mark.parametrize(
    "command",
    [
        "!touch f.txt; rm -i f.txt",
        "!read x; echo got:$x",
        "!python -c 'input()'",
        "%%bash\nread x\necho $?",
        "import os; os.system('read x')",
    ],
)
def test_a_command_that_asks_ends_by_itself(kernel: Kernel, command: str) -> None:
    """Commands find their standard input at its end."""
    assert kernel.cell(command, 5.0).status in ("ok", "error")


def test_fork_in_a_cell(kernel: Kernel) -> None:
    """A forked child prints once, ends with the cell, and never answers a request."""
    request = kernel.cell(
        "import os\nprint('before')\nif (pid := os.fork()) == 0:\n    print('child', flush=True)\nelse:\n    print('parent', flush=True)\n    status = os.waitpid(pid, 0)[1]"
    )
    assert sorted(request.stream("stdout").split()) == ["before", "child", "parent"]
    assert kernel.cell("status").result == "0"
    count = kernel.cell("1").content["execution_count"]
    again = kernel.cell("1 + 1")
    assert again.kinds == ["busy", "execute_input", "execute_result", "idle"]
    assert again.content["execution_count"] == count + 1
    failing = kernel.cell(
        "if os.fork() == 0:\n    1/0\nelse:\n    code = os.waitstatus_to_exitcode(os.wait()[1])"
    )
    assert failing.status == "ok"
    assert "ZeroDivisionError" in failing.text
    assert kernel.cell("code").result == "1"


def test_fork_in_an_awaited_cell(kernel: Kernel) -> None:
    """The same for a cell that runs on the event loop."""
    request = kernel.cell(
        "import asyncio, os\nawait asyncio.sleep(0)\npid = os.fork()\nif pid == 0: print('child')\nelse: os.waitpid(pid, 0); print('parent')"
    )
    assert sorted(request.stream("stdout").split()) == ["child", "parent"]


def test_multiprocessing(kernel: Kernel) -> None:
    """Pools work; what their workers print arrives once."""
    request = kernel.cell(
        "import multiprocessing as m\n"
        "def f(x):\n    print('w', x, flush=True); return x * x\n"
        "with m.get_context('fork').Pool(2) as p: r = p.map(f, range(4))\nr"
    )
    assert request.result == "[0, 1, 4, 9]"
    assert sorted(request.stream("stdout").splitlines()) == [f"w {i}" for i in range(4)]


def test_threads_that_print_at_once(kernel: Kernel) -> None:
    """Lines of many threads are whole and all there."""
    request = kernel.cell(
        "import threading\n"
        "def f(k):\n    for i in range(200): print(f'{k}:{i}\\n', end='')\n"
        "ts = [threading.Thread(target=f, args=(k,)) for k in range(5)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]; None"
    )
    assert sorted(request.text.split()) == sorted(f"{k}:{i}" for k in range(5) for i in range(200))


def test_output_at_the_end_of_the_process(new_kernel: Callable[..., Kernel]) -> None:
    """What exit handlers print still arrives."""
    kernel = new_kernel()
    kernel.cell("import atexit; atexit.register(lambda: print('bye'))")
    kernel.request("shutdown_request", {"restart": False}, channel="control")
    kernel.wait_until(lambda: kernel.connection.is_ended, 10.0, "the end of the kernel")
    assert "bye" in str(kernel.log)


def test_what_children_wrote_comes_before_what_is_printed_after_them(kernel: Kernel) -> None:
    """In the order in which it happened, however soon the cell prints."""
    kernel.cell(
        "import multiprocessing, subprocess\n"
        "def square(n):\n    print('square', n, flush=True)\n    return n * n\n"
        "pool = multiprocessing.get_context('fork').Pool(1)"
    )
    for _ in range(40):
        pooled = kernel.cell("print(pool.map(square, range(3)))")
        run = kernel.cell("subprocess.run(['echo', 'a']); print('b')")

        assert pooled.text == "square 0\nsquare 1\nsquare 2\n[0, 1, 4]\n"
        assert run.text == "a\nb\n"
    kernel.cell("pool.terminate(); pool.join()")
