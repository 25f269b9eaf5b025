"""run: notebooks without a front end."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pexpect
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.support import no_limits


@pytest.fixture
def write(home):
    """Return a function that writes a notebook of these cells and returns its path."""

    def write(*codes, name="book.ipynb"):
        cells = [new_markdown_cell("# Title"), *(new_code_cell(code) for code in codes)]
        path = home.work / name
        nbformat.write(new_notebook(cells=cells), path)
        return path

    return write


def outputs(path):
    notebook = nbformat.read(path, as_version=4)
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


def test_a_notebook_runs_beside_its_files(sandbox, home, write):
    """Cells see the notebook's folder, and the folder does not change; the fresh sandbox goes."""
    (home.work / "data.txt").write_text("42")
    path = write("open('data.txt').read()", "print(1)\nprint(2)\nopen('made.txt', 'w').write('1')")
    before = path.read_bytes()

    ended = sandbox("run", path, "--output", home.root / "out.ipynb", "--json")

    assert ended.code == 0
    assert ended.json == {"notebook": str(path), "cells_executed": 2, "failure": None}
    (first,), (printed, *_) = outputs(home.root / "out.ipynb")
    assert first.data["text/plain"] == "'42'"
    assert printed.text == "1\n2\n"
    assert path.read_bytes() == before
    assert sorted(os.listdir(home.work)) == ["book.ipynb", "data.txt"]


def test_a_cell_that_raises_ends_the_run(sandbox, home, write):
    """Exit code 1, one line that says where and what, and the outputs so far are kept."""
    path = write("print('before')", "1 / 0", "print('after')")

    ended = sandbox("run", "--inplace", path)

    assert ended.code == 1
    assert (
        ended.err.splitlines()[-1] == "jupyter sandbox: cell 3: ZeroDivisionError: division by zero"
    )
    first, second, third = outputs(path)
    assert first[0].text == "before\n"
    assert second[0].ename == "ZeroDivisionError"
    assert third == []


@pytest.mark.parametrize("quiet", [False, True], ids=["bar", "quiet"])
def test_a_terminal_sees_how_far_the_run_is(home, write, quiet):
    """A bar counts the code cells; not where nobody looks, and not if it is not wanted."""
    path = write("print(1)", "print(2)")
    words = ["-m", "sandbox_kernel.cli", "run", *["--quiet"] * quiet, str(path)]
    run = pexpect.spawn(sys.executable, words, env=home.env(), encoding="utf-8", timeout=60)

    run.expect(pexpect.EOF)
    run.close()

    assert run.exitstatus == 0
    counts = [count for count in ("0/2", "1/2", "2/2") if count in run.before]
    assert counts == ([] if quiet else ["0/2", "1/2", "2/2"]), run.before


def test_errors_can_be_allowed(sandbox, write):
    """Then the run goes on to its end."""
    path = write("1 / 0", "print('after')")

    assert sandbox("run", "--inplace", "--allow-errors", path).code == 0
    assert outputs(path)[1][0].text == "after\n"


def test_a_cell_that_takes_too_long_is_ended(sandbox, write):
    """--timeout is for each cell."""
    ended = sandbox("run", "--timeout", "1", write("import time\ntime.sleep(600)"))

    assert ended.code == 1
    assert "cell 2: took longer than 1 s" in ended.err


def test_a_cell_that_asks_for_input_fails(sandbox, write):
    """Nobody is there to type, and waiting for it would never end."""
    path = write("input('name? ')", "print('after')")

    ended = sandbox("run", "--inplace", "--timeout", "60", path)

    assert ended.code == 1
    assert "cell 2: StdinNotImplementedError" in ended.err
    assert outputs(path)[1] == []


def test_walls_are_set_for_one_run(sandbox, write, monkeypatch):
    """By options, under the names of the settings; a limit may be a weaker one where accepted."""
    monkeypatch.setenv(
        "SANDBOX_CONFIG",
        json.dumps({"SandboxManager": {"accept_weaker_limits": True, "memory_bytes": 1 << 40}}),
    )
    code = "import resource\nprint(resource.getrlimit(resource.RLIMIT_AS)[0], os.getcwd())"
    path = write(f"import os\n{code}")

    ended = sandbox("run", "--inplace", "--memory", "3G", "--notebook-folder", "none", path)

    assert ended.code == 0, ended.err
    limit, folder = outputs(path)[0][0].text.split()
    assert folder == "/workspace"
    # Unlimited where a control group holds it, of which a program does not see the limit.
    assert int(limit) in {3 << 30, -1}


def test_a_run_goes_before_what_was_chosen_for_its_sandbox(sandbox, write):
    """Else a wall that is asked for would be missing, unsaid."""
    path = write("import os\nprint(os.getcwd())")
    assert sandbox("run", "--id", "kept", "--notebook-folder", "overlay", path).code == 0
    sandbox("stop", "kept")

    ended = sandbox("run", "--id", "kept", "--notebook-folder", "none", "--inplace", path)

    assert ended.code == 0, ended.err
    assert outputs(path)[0][0].text == "/workspace\n"


def test_a_limit_that_cannot_be_had_is_told_once(sandbox, write, monkeypatch):
    """With the code and the words of every other command, and no cell is run."""
    monkeypatch.setenv("SANDBOX_ENGINE", no_limits.REFERENCE)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    path = write("open('ran', 'w')")

    ended = sandbox("run", "--id", "s", "--memory", "1G", path)
    told = sandbox("run", "--memory", "1G", path, "--json")

    assert ended.code == told.code == 2
    line, hint = ended.err.splitlines()
    assert "cannot enforce the limit 'memory_bytes'" in line
    assert "Leave 'memory_bytes' out" in hint
    assert told.json["error"]["code"] == "LIMIT_NOT_ENFORCEABLE"
    assert told.err == ""


def test_a_folder_that_is_not_shared_is_told(sandbox, home, write, monkeypatch):
    """One line, though no cell may ever look for a file."""
    monkeypatch.setenv("HOME", str(home.work))

    ended = sandbox("run", write("1"))

    assert ended.code == 0
    (line,) = ended.err.splitlines()
    assert f"{home.work} is not shared" in line
    assert "your home folder" in line


@pytest.mark.parametrize(
    "words", [["run", "--id", "My"], ["exec", "My", "true"], ["stop", "My"], ["diff", "My"]]
)
def test_capital_letters_in_an_id_are_told_in_the_words_of_the_command(sandbox, write, words):
    """The options of the Python API are none of it."""
    path = [write("1")] if words[0] == "run" else []

    ended = sandbox(*words, *path)

    assert ended.code == 2
    assert "'My' is not a sandbox id: it holds capital letters." in ended.err
    assert "normalize_id" not in ended.err


def test_a_named_sandbox_stays(sandbox, write):
    """Its files are there for the next run, and for exec."""
    first = write("open('/workspace/n', 'w').write('7')", name="a.ipynb")
    second = write("print(open('/workspace/n').read())", name="b.ipynb")

    assert sandbox("run", first, "--id", "kept").code == 0
    assert sandbox("run", second, "--id", "kept", "--inplace").code == 0
    assert outputs(second)[0][0].text == "7\n"
    assert sandbox("exec", "kept", "--", "cat", "/workspace/n").out == "7"


def test_variables_reach_the_cells(sandbox, write):
    """--env sets them in the sandbox."""
    path = write("import os\nprint(os.environ['FLAVOUR'])")

    assert sandbox("run", path, "--inplace", "--env", "FLAVOUR=sweet").code == 0
    assert outputs(path)[0][0].text == "sweet\n"


def test_what_is_no_notebook_is_refused(sandbox, home):
    """A missing file, and a file of another kind."""
    (home.work / "text.ipynb").write_text("hello")

    assert sandbox("run", home.work / "missing.ipynb").code == 2
    refused = sandbox("run", home.work / "text.ipynb")
    assert refused.code == 2
    assert "is no notebook" in refused.err
    assert sandbox("run", home.work / "text.ipynb", "--kernel", "x").code == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[1]", "nbformat"),
        ('{"nbformat": 9, "cells": []}', "nbformat 9"),
        ('{"nbformat": 4, "metadata": {}}', "list of cells"),
        ('{"nbformat": 4, "metadata": {}, "cells": [{"cell_type": "code"}]}', "cell 1"),
        ('{"nbformat": 4, "metadata": 1, "cells": []}', "metadata"),
        ("[" * 200_000, "not JSON"),
        ("\xff", "not JSON"),
    ],
)
def test_a_malformed_notebook_is_refused_with_its_fault(sandbox, home, content, reason):
    """nbformat would go on with such a notebook and fail somewhere else."""
    (home.work / "bad.ipynb").write_text(content, encoding="latin-1")

    ended = sandbox("run", home.work / "bad.ipynb", "--json")

    assert ended.code == 2
    assert ended.json["error"]["code"] == "INVALID_CONFIGURATION"
    assert reason in ended.json["error"]["message"]


def test_a_notebook_of_an_older_format_runs(sandbox, home):
    """It is written in today's."""
    old = {
        "nbformat": 3,
        "nbformat_minor": 0,
        "metadata": {"name": ""},
        "worksheets": [
            {
                "metadata": {},
                "cells": [
                    {
                        "cell_type": "code",
                        "collapsed": False,
                        "input": "print(6 * 7)",
                        "language": "python",
                        "metadata": {},
                        "outputs": [],
                    }
                ],
            }
        ],
    }
    path = home.work / "old.ipynb"
    path.write_text(json.dumps(old))

    assert sandbox("run", path, "--inplace").code == 0
    assert outputs(path)[0][0].text == "42\n"


def test_a_run_imports_nothing_that_compiles_grammars(home, write):
    """jsonschema imports such packages where they are installed, and takes seconds for it."""
    script = (
        "import sys\n"
        "from sandbox_kernel.cli import main\n"
        "code = main(['run', sys.argv[1], '--quiet'])\n"
        "print(code, 'nbclient' in sys.modules, 'rfc3987_syntax' in sys.modules)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, write("1")], capture_output=True, text=True, check=True
    )

    assert ended.stdout == "0 True False\n"


def test_an_unknown_kernel_has_a_hint(sandbox, write):
    """The mend is a command of ours."""
    ended = sandbox("run", write("1"), "--kernel", "no-such-kernel")

    assert ended.code == 2
    assert "kernelspec install" in ended.err


def test_a_kernel_of_the_host_is_refused(sandbox, write):
    """`run` promises a sandbox: a kernelspec that is not ours runs nothing."""
    path = write("open('ran', 'w')")

    ended = sandbox("run", path, "--kernel", "python3")

    assert ended.code == 2
    assert "does not run in a sandbox" in ended.err
    assert not (path.parent / "ran").exists()


def test_a_target_that_cannot_be_written_is_refused_first(sandbox, write):
    """Nothing is run whose outcome would be lost."""
    path = write("open('ran', 'w')")

    ended = sandbox("run", path, "--output", path.parent / "nowhere" / "done.ipynb")

    assert ended.code == 2
    assert "does not exist" in ended.err


def test_outputs_that_find_no_room_leave_the_notebook_as_it_was(sandbox, write, monkeypatch):
    """The error is typed, and no draft stays."""
    path = write("1")
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sandbox_kernel.folder.notebook_files.os.replace", full)
    ended = sandbox("run", "--inplace", path)

    assert ended.code == 6
    assert "no space is left" in ended.err
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_interrupting_a_run_keeps_what_there_is(home, write):
    """Exit code 130, no traceback, and the outputs so far are written."""
    path = write("print('before')", "import time\nopen('/workspace/x', 'w')\ntime.sleep(600)")
    running = subprocess.Popen(
        [sys.executable, "-m", "sandbox_kernel.cli", "run", "--inplace", "--id", "s", path],
        stderr=subprocess.PIPE,
        text=True,
    )
    looking = [sys.executable, "-m", "sandbox_kernel.cli", "exec", "s", "--"]
    wait = "for i in $(seq 300); do test -e /workspace/x && exit; sleep 0.1; done; exit 1"
    subprocess.run([*looking, "sh", "-c", wait], check=True, timeout=60)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)

    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert outputs(path)[0][0].text == "before\n"


FORGE = """
import json
def forge(msg_type, content):
    pipe = get_ipython().kernel.pipe
    parent = json.dumps(get_ipython().parent_header, default=str).encode()
    header = json.dumps({"msg_type": msg_type}).encode()
    pipe.put(4, [b"x"], [header, parent, b"{}", json.dumps(content).encode()])
"""


def test_a_display_of_no_text_is_shown_as_text(sandbox, write):
    """What a notebook cannot hold becomes what it can, or is left out; the run goes on."""
    path = write(
        "from IPython.display import display\ndisplay({'text/plain': 5}, raw=True)",
        f"{FORGE}\nforge('execute_result', {{'data': {{}}, 'execution_count': -5}})",
        "print('after')",
    )

    ended = sandbox("run", "--inplace", path)

    assert ended.code == 0
    shown, forged, after = outputs(path)
    assert shown[0].data == {"text/plain": "5"}
    assert "left out: execution_count is no count" in forged[0].text
    assert after[0].text == "after\n"
    nbformat.validate(nbformat.read(path, as_version=4))


def test_a_message_that_no_notebook_can_hold_ends_the_run(sandbox, write, monkeypatch):
    """One line, and what came before it is kept.  An output policy lets no such message through."""
    monkeypatch.setenv(
        "SANDBOX_CONFIG", json.dumps({"SandboxManager": {"output_policy": "trusted"}})
    )
    path = write(
        "print('before')",
        f"{FORGE}\nforge('comm_open', {{'comm_id': 'c', 'target_name': 't', 'data': {{'state': 5}}}})",
    )

    ended = sandbox("run", "--inplace", "--quiet", path)

    assert ended.code == 1
    assert "Traceback" not in ended.err
    assert ended.err.startswith("jupyter sandbox: cell 3: an output no notebook can hold: ")
    assert len(ended.err.splitlines()) == 1
    assert outputs(path)[0][0].text == "before\n"
