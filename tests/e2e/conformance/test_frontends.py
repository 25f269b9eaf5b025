"""Front ends without a Jupyter server: papermill, nbconvert and the console."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pexpect
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL


def write(path: Path, *codes: str) -> Path:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in codes])
    notebook.metadata["kernelspec"] = {"name": KERNEL, "display_name": "k", "language": "python"}
    nbformat.write(notebook, path)
    return path


def program(home: JupyterHome, *argv: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *argv],
        env=home.env(),
        cwd=home.work,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def outputs(path: Path) -> list[list[Any]]:
    return [cell.outputs for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]


def text_of(found: list[Any]) -> str:
    """Join the texts of a cell's streams: where one is cut depends on a flush timer."""
    return "".join(output.text for output in found if output.output_type == "stream")


@pytest.mark.slow
def test_papermill_executes_with_parameters(home: JupyterHome) -> None:
    """papermill starts the kernel, sets parameters and saves the outputs."""
    source = write(home.work / "in.ipynb", "n = 1", "print('n is', n)", "import os; os.getcwd()")
    notebook = nbformat.read(source, 4)
    notebook.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, source)

    done = program(home, "papermill", "in.ipynb", "out.ipynb", "-p", "n", "5", "--no-progress-bar")

    assert done.returncode == 0, done.stderr
    printed = outputs(home.work / "out.ipynb")
    assert text_of(printed[2]) == "n is 5\n"
    assert printed[3][0].data["text/plain"] == repr(str(home.work))


@pytest.mark.slow
def test_papermill_stops_at_sys_exit_without_an_exception(home: JupyterHome) -> None:
    """sys.exit(0) ends a notebook early, and that is a success."""
    write(home.work / "in.ipynb", "print('a')", "import sys; sys.exit(0)", "print('never')")

    done = program(home, "papermill", "in.ipynb", "out.ipynb", "--no-progress-bar")

    assert done.returncode == 0, done.stderr
    printed = outputs(home.work / "out.ipynb")
    assert text_of(printed[0]) == "a\n"
    assert not printed[2]


@pytest.mark.slow
def test_papermill_fails_when_the_interpreter_is_killed(home: JupyterHome) -> None:
    """A killed interpreter is a failure in time, never a hang and never a success."""
    write(home.work / "in.ipynb", "print('a')", "import os; os.kill(os.getpid(), 9)", "print('b')")

    done = program(home, "papermill", "in.ipynb", "out.ipynb", "--no-progress-bar", timeout=30)

    assert done.returncode != 0
    assert "Kernel died" in done.stderr or "SIGKILL" in done.stderr, done.stderr


@pytest.mark.parametrize("timeout", [30, None], ids=["timeout", "no-timeout"])
def test_nbclient_fails_when_the_interpreter_is_killed(
    home: JupyterHome, timeout: int | None
) -> None:
    """nbclient learns within 15 s that the interpreter was killed, whatever its own time limit."""
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(code)
            for code in ("print('a')", "import os; os.kill(os.getpid(), 9)", "print('b')")
        ]
    )
    client = NotebookClient(notebook, kernel_name=KERNEL, timeout=timeout)
    started = time.monotonic()
    with pytest.raises((DeadKernelError, CellExecutionError)) as caught:
        client.execute(env=home.env(), cwd=str(home.work))

    assert time.monotonic() - started < 15
    assert isinstance(caught.value, DeadKernelError) or "SIGKILL" in str(caught.value)
    assert text_of(notebook.cells[0].outputs) == "a\n"
    assert not notebook.cells[2].outputs


@pytest.mark.slow
def test_nbconvert_executes(home: JupyterHome) -> None:
    """nbconvert --execute writes a notebook and a page with the outputs."""
    write(home.work / "in.ipynb", "print('converted')", "1 / 0")

    for target in ("notebook", "html"):
        done = program(
            home,
            *("nbconvert", "--execute", "--allow-errors", "--to", target),
            *("--output", f"out-{target}", "in.ipynb"),
        )
        assert done.returncode == 0, done.stderr

    printed = outputs(home.work / "out-notebook.ipynb")
    assert text_of(printed[0]) == "converted\n"
    assert printed[1][0].ename == "ZeroDivisionError"
    assert "converted" in (home.work / "out-html.html").read_text()


@pytest.mark.slow
def test_the_console_talks_and_says_nothing_of_its_own(home: JupyterHome) -> None:
    """jupyter console runs cells, asks for input, interrupts with Ctrl-C and leaves on exit."""
    console = pexpect.spawn(
        sys.executable,
        ["-m", "jupyter_console", "--simple-prompt", f"--kernel={KERNEL}"],
        env=home.env(TERM="dumb"),
        cwd=str(home.work),
        encoding="utf-8",
        timeout=30,
    )
    try:
        console.expect_exact("In [1]: ")
        banner = console.before
        console.sendline("print(6 * 7)")
        console.expect_exact("42\r\n")
        console.expect_exact("In [2]: ")
        console.sendline("name = input('who? ')")
        console.expect_exact("who? ")
        console.sendline("me")
        console.expect_exact("In [3]: ")
        console.sendline("name * 2")
        console.expect_exact("'meme'")
        console.expect_exact("In [4]: ")
        console.sendline("import time; print('waiting', flush=True); time.sleep(60)")
        console.expect("\nwaiting")
        console.sendintr()
        console.expect("KeyboardInterrupt")
        console.expect_exact("In [5]: ")
        console.sendline("1 / 0")
        console.expect("ZeroDivisionError")
        console.sendline("exit")
        console.expect(pexpect.EOF)
    finally:
        console.close(force=True)

    assert "Python 3" in banner
    if KERNEL != "python3":
        assert "WARNING" not in banner
        assert "Traceback" not in banner
