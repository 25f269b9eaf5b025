"""completion in real shells."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

from sandbox_kernel.cli.completion import script

_SHELLS = [
    pytest.param(
        shell,
        marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"there is no {shell} here"),
    )
    for shell in ("bash", "zsh")
]

_BASH = """
source SCRIPT
complete_words() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _jupyter_and_sandbox
    printf '%s\\n' "${COMPREPLY[@]}"
}
complete_words @TYPED@
"""


@pytest.fixture
def shell_words(home, tmp_path):
    """Return a function that completes the last of some words in bash."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    jupyter = bin_folder / "jupyter"
    jupyter.write_text(
        f'#!/bin/sh\nshift\nexec {shlex.quote(sys.executable)} -m sandbox_kernel.cli "$@"\n'
    )
    jupyter.chmod(0o755)
    environ = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    work = tmp_path / "typed-in"
    work.mkdir()

    def complete(*words: str) -> list[str]:
        completions = tmp_path / "completion"
        completions.write_text(script("bash"))
        text = _BASH.replace("SCRIPT", shlex.quote(str(completions)))
        ended = subprocess.run(
            ["bash", "--norc", "-c", text.replace("@TYPED@", shlex.join(["jupyter", *words]))],
            capture_output=True,
            text=True,
            cwd=work,
            env=environ,
            timeout=60,
            check=True,
        )
        assert ended.stderr == ""
        return ended.stdout.split()

    complete.work = work
    complete.environ = environ
    return complete


def test_commands_and_options_are_completed(shell_words):
    """Also those of groups; what follows the sandbox of exec is another program's."""
    assert shell_words("sandb") == ["sandbox"]
    assert shell_words("sandbox", "st") == ["stats", "stop"]
    assert shell_words("sandbox", "ports", "li") == ["listen", "list"]
    assert shell_words("sandbox", "stop", "--g") == ["--grace"]
    assert shell_words("sandbox", "run", "--notebook-folder", "o") == ["overlay"]
    assert shell_words("sandbox", "completion", "z") == ["zsh"]
    assert shell_words("sandbox", "exec", "one", "ls", "--") == []
    assert shell_words("sandbox", "nonsense", "") == []


def test_ids_and_files_are_completed_and_nothing_is_started(shell_words, sandbox):
    """Ids where a sandbox is meant, files where they are, both where a copy ends."""
    sandbox("create", "report")
    sandbox("stop", "report")
    (shell_words.work / "report.ipynb").write_text("{}")

    assert shell_words("sandbox", "stop", "--grace", "3", "re") == ["report"]
    assert shell_words("sandbox", "logs", "r") == ["report"]
    assert shell_words("sandbox", "run", "re") == ["report.ipynb"]
    assert shell_words("sandbox", "cp", "re") == ["report:", "report.ipynb"]
    assert sandbox("list", "--json").json[0]["state"] == "stopped"


@pytest.mark.parametrize("shell", _SHELLS)
def test_a_tab_at_a_prompt_completes(shell_words, shell):
    """Typed into an interactive shell, for both ways to call the command."""
    environ = {**shell_words.environ, "TERM": "dumb", "PS1": "% "}
    file = shell_words.work / "completion"
    file.write_text(script(shell))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(shell, [shell, "-f" if shell == "zsh" else "--norc", "-i"], environ)  # noqa: S606
    try:
        os.write(terminal, f". {shlex.quote(str(file))}; echo rea''dy\n".encode())
        _read_until(terminal, b"ready")
        os.write(terminal, b"jupyter sandbox ports unex\t")
        _read_until(terminal, b"unexpose ")
        os.write(terminal, b"\x15jupyter-sandbox stop --gr\t")
        _read_until(terminal, b"--grace ")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _read_until(terminal: int, wanted: bytes) -> None:
    shown = b""
    deadline = time.monotonic() + 20
    while wanted not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 0.5)[0]:
            shown += os.read(terminal, 4096)


@pytest.mark.parametrize("shell", _SHELLS)
def test_the_script_is_read_without_a_word(sandbox, shell):
    """By the shell it is for."""
    text = sandbox("completion", shell).out
    ended = subprocess.run(
        [shell, "-f" if shell == "zsh" else "--norc", "-c", text],
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
