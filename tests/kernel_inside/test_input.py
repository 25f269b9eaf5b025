"""input() and getpass of the interpreter inside."""

from __future__ import annotations

import time

from tests.support.kernel_driver import Kernel, Request


def reply(kernel: Kernel, request: Request, value: str, *, index: int = -1) -> None:
    """Answer an input request as a page does, naming the request."""
    message = {
        "header": {"msg_id": f"reply-{time.monotonic_ns()}", "msg_type": "input_reply"},
        "parent_header": request.inputs[index]["header"] if index is not None else {},
        "metadata": {},
        "content": {"value": value, "status": "ok"},
        "buffers": [],
    }
    kernel.connection.send("stdin", message)


def test_input_and_getpass(kernel: Kernel) -> None:
    """A prompt goes to the asker with the cell as parent; the answer is the value."""
    request = kernel.execute("print('before'); x = input('name? '); x", allow_stdin=True)
    asked = request.wait_for_input()
    assert asked["content"] == {"prompt": "name? ", "password": False}
    assert asked["identities"] == [b"client"]
    assert "before" in request.text
    kernel.answer(request, "yo")
    assert request.wait().result == "'yo'"

    request = kernel.execute("import getpass; getpass.getpass('pw: ')", allow_stdin=True)
    assert request.wait_for_input()["content"] == {"prompt": "pw: ", "password": True}
    reply(kernel, request, "secret")
    assert request.wait().result == "'secret'"


def test_input_refused(kernel: Kernel) -> None:
    """Without allow_stdin, input raises at once."""
    request = kernel.cell("input('x')", 3.0, allow_stdin=False)
    assert request.content["ename"] == "StdinNotImplementedError"


def test_interrupted_input_and_its_late_answer(kernel: Kernel) -> None:
    """An interrupt ends the wait; an answer that comes later is not taken for the next question."""
    first = kernel.execute("x = input('name? ')", allow_stdin=True)
    first.wait_for_input()
    kernel.interrupt()
    assert first.wait(2.0).content["ename"] == "KeyboardInterrupt"
    reply(kernel, first, "ghost")
    second = kernel.execute("y = input('again? ')", allow_stdin=True)
    second.wait_for_input()
    reply(kernel, first, "ghost")
    reply(kernel, second, "real")
    assert second.wait().status == "ok"
    assert kernel.cell("print(y)").text == "real\n"


def test_a_late_answer_that_names_nothing(kernel: Kernel) -> None:
    """Clients that do not name the question are understood, unless nobody asks."""
    first = kernel.execute("x = input('name? ')", allow_stdin=True)
    first.wait_for_input()
    kernel.interrupt()
    first.wait(2.0)
    kernel.answer(first, "ghost")
    kernel.cell("1")
    second = kernel.execute("input('again? ')", allow_stdin=True)
    second.wait_for_input()
    kernel.answer(second, "real")
    assert second.wait().result == "'real'"


def test_end_of_input(kernel: Kernel) -> None:
    """The answer that stands for ctrl-D raises EOFError."""
    request = kernel.execute("input()", allow_stdin=True)
    request.wait_for_input()
    kernel.answer(request, "\x04")
    assert request.wait().content["ename"] == "EOFError"


def test_pdb(kernel: Kernel) -> None:
    """The debugger at the prompt asks through input, and can be interrupted there."""
    kernel.cell("def f():\n    a = 1\n    import pdb; pdb.set_trace()\n    return a")
    request = kernel.execute("f()", allow_stdin=True)
    request.wait_for_input()
    kernel.answer(request, "p a + 41")
    request.wait_for_input(2)
    assert "42" in request.text
    kernel.answer(request, "c")
    assert request.wait().result == "1"
    request = kernel.execute("f()", allow_stdin=True)
    request.wait_for_input()
    kernel.interrupt()
    request.wait(5.0)
    assert kernel.cell("3").result == "3"
