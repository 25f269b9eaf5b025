"""list, stop, destroy and exec on real sandboxes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from sandbox_kernel.cli.naming import sandbox_id_of


def test_a_sandbox_from_first_command_to_destruction(sandbox):
    """exec makes it, list shows it, stop keeps its files, destroy does not."""
    assert sandbox("list").out == "There are no sandboxes.\n"
    assert sandbox("exec", "one", "--", "sh", "-c", "echo kept > /workspace/f").code == 0
    (listed,) = sandbox("list", "--json").json
    assert (listed["sandbox_id"], listed["state"], listed["network"]) == ("one", "running", False)

    assert sandbox("stop", "one").out == "one: stopped\n"
    assert sandbox("list", "--json").json[0]["state"] == "stopped"
    assert sandbox("exec", "one", "--", "cat", "/workspace/f").out == "kept\n"

    refused = sandbox("destroy", "one")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert sandbox("destroy", "--all", "--yes", "--json").json == [
        {"sandbox_id": "one", "result": "destroyed"}
    ]
    assert sandbox("list", "--json").json == []


def test_exec_gives_streams_and_exit_code(sandbox):
    """What the program wrote where it wrote it, in bytes, and its code."""
    ended = sandbox("exec", "one", "--", "sh", "-c", "echo out; echo err >&2; exit 7")

    assert (ended.code, ended.out, ended.err) == (7, "out\n", "err\n")


def test_exec_leaves_the_programs_arguments_alone(sandbox):
    """Options and further double dashes behind the first one are the program's."""
    ended = sandbox(
        "exec", "--json", "one", "--cwd", "/tmp", "--", "printf", "%s|", "--json", "--", "-h"
    )

    assert ended.json["stdout"] == "--json|--|-h|"


def test_exec_sets_folder_and_variables(sandbox):
    """--cwd and --env are for this program."""
    ended = sandbox(
        "exec", "one", "--cwd", "/tmp", "--env", "A=b=c", "--", "sh", "-c", "pwd; echo $A"
    )

    assert ended.out == "/tmp\nb=c\n"
    assert sandbox("exec", "one", "--env", "A", "--", "true").code == 2


def test_exec_has_the_codes_of_shells_for_what_did_not_run(sandbox):
    """124 for the time limit, 126 and 127 as a shell has them."""
    assert sandbox("exec", "one", "--", "no-such-program").code == 127
    assert sandbox("exec", "one", "--", "/etc/passwd").code == 126
    assert sandbox("exec", "one", "--timeout", "0.2", "--", "sleep", "60").code == 124
    assert sandbox("exec", "not an id", "--", "true").code == 2


@pytest.fixture
def command(home):
    return [sys.executable, "-m", "sandbox_kernel.cli", "exec", "one", "--"]


def test_exec_passes_piped_input_on(command):
    """Every byte, and the end; a program that does not read does not hold us up."""
    data = os.urandom(300_000)

    through = subprocess.run(
        [*command, "cat"], input=data, capture_output=True, timeout=60, check=True
    )
    unread = subprocess.run(
        [*command, "true"], input=data, capture_output=True, timeout=60, check=True
    )

    assert through.stdout == data
    assert unread.stderr == b""


def test_exec_shows_output_as_it_is_written(command):
    """The first line is there while the program waits for its input."""
    running = subprocess.Popen(
        [*command, "sh", "-c", "echo first; read line; echo $line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert running.stdout.readline() == b"first\n"
    rest, _ = running.communicate(b"second\n", timeout=30)

    assert rest == b"second\n"


def test_interrupting_exec_ends_the_program(command, sandbox):
    """Nothing of it goes on in the sandbox, and the code says how it ended."""
    running = subprocess.Popen(
        [*command, "sh", "-c", "sleep 97531 & echo started; wait"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout.readline() == b"started\n"
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)

    assert running.returncode == 130
    assert b"Traceback" not in err
    deadline = time.monotonic() + 10
    while "97531" in sandbox(
        "exec", "one", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
    ).out.replace("sh -c cat", ""):
        assert time.monotonic() < deadline


def test_a_notebooks_path_names_its_sandbox(tmp_path, monkeypatch):
    """The id is the one that the notebook's kernel gets from a Jupyter server."""
    from sandbox_kernel.kernel.identity import choose

    notebook = tmp_path / "My Analysis.ipynb"
    monkeypatch.chdir(tmp_path)
    served = choose(
        connection_file="/run/kernel-1.json",
        key=b"k",
        environ={"JPY_SESSION_NAME": "sub/My Analysis.ipynb"},
        cwd=str(tmp_path),
        configured_id=None,
    )

    assert sandbox_id_of(str(notebook)) == sandbox_id_of(notebook.name) == served.sandbox_id
    assert sandbox_id_of("my-sandbox") == "my-sandbox"


def test_exec_starts_a_notebooks_sandbox_with_the_notebooks_folder(sandbox, tmp_path):
    """The command may come before the first cell; a name of bytes that are no UTF-8 is a name."""
    for name in (b"a.ipynb", b"\xff.ipynb"):
        notebook = tmp_path / "notebooks" / os.fsdecode(name)
        notebook.parent.mkdir(exist_ok=True)
        notebook.write_text("{}")
        ended = sandbox("exec", notebook, "ls")
        assert (ended.code, ended.err) == (0, "")
        assert "a.ipynb" in ended.out
    assert sandbox("diff", notebook).code == 0


@pytest.mark.parametrize("text", ["a.ipynb", "./a", "folder/", "/"])
def test_exec_starts_nothing_for_a_path_without_a_notebook(sandbox, text, tmp_path, monkeypatch):
    """A mistyped path is an error, not one more sandbox."""
    monkeypatch.chdir(tmp_path)
    ended = sandbox("exec", text, "--", "true")

    assert ended.code == 2
    assert "is no notebook" in ended.err
    assert sandbox("list", "--json").json == []


def test_exec_ends_when_a_standard_stream_is_missing(command):
    """A closed input is an empty one, a closed error output loses text, a full one is an error."""
    line = shlex.join(command)
    for script, code, out in (
        (f"{line} cat <&-", 0, b""),
        (f"{line} sh -c 'echo out; echo err >&2' 2>&-", 0, b"out\n"),
        (f"{line} echo out >/dev/full", 125, b""),
    ):
        ended = subprocess.run(["bash", "-c", script], capture_output=True, timeout=60, check=False)
        assert (ended.returncode, ended.stdout) == (code, out)
        assert b"Traceback" not in ended.stderr


def test_a_umask_that_forbids_everything_is_no_hindrance(sandbox, tmp_path):
    """The first start makes files that later ones, and the programs inside, can use."""
    notebook = tmp_path / "notebooks" / "a.ipynb"
    notebook.parent.mkdir()
    notebook.write_text("{}")
    before = os.umask(0o777)
    try:
        first = sandbox("exec", notebook, "--", "stat", "-c", "%a", "/workspace", "/home/user")
        assert os.umask(0o777) == 0o777
    finally:
        os.umask(before)

    assert (first.code, first.out) == (0, "700\n700\n"), first.err
    sandbox("stop", notebook)
    write = f"echo 1 > {notebook.parent}/b; echo 1 > /workspace/b"
    assert sandbox("exec", notebook, "--", "sh", "-ec", write).code == 0
    assert [change["path"] for change in sandbox("diff", notebook, "--json").json] == ["b"]
