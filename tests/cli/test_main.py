"""The command as such: how it starts, how it fails, how it speaks."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel.cli.exit_codes import EXEC_CODES, EXIT_CODES, TERMINAL_CODES
from sandbox_kernel.cli.parser import parse_arguments
from sandbox_kernel.cli.report import exit_code_of, printable, size_text
from sandbox_kernel.errors import (
    EngineUnavailableError,
    SandboxBusyError,
    SandboxConfigurationError,
    SandboxError,
    SandboxNotFoundError,
    SandboxRunningError,
    StorageError,
    StorageFullError,
    ValidationFailedError,
)
from tests.support import docker
from tests.support.docker import need_docker


def test_help_loads_nothing_that_is_slow():
    """A command's module, and Jupyter with it, is imported when the command runs."""
    script = (
        "import sys\n"
        "from sandbox_kernel.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "slow = {'asyncio', 'jupyter_client', 'nbformat', 'traitlets', 'zmq', 'tornado', 'tqdm'}\n"
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert ended.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SandboxNotFoundError("x"), 3),
        (SandboxBusyError("x", 1), 4),
        (SandboxRunningError("x", "do"), 4),
        (EngineUnavailableError("bubblewrap", "no", "do"), 5),
        (SandboxConfigurationError("no"), 2),
        (ValidationFailedError("path", "is wrong"), 2),
        (StorageError("f", "read", "no"), 6),
        (StorageFullError("f", "write"), 6),
        (SandboxError("no"), 1),
    ],
)
def test_exit_codes_are_those_of_the_page(error, code):
    """docs/cli.md lists them; programs rely on them."""
    assert exit_code_of(error) == code


def test_help_and_page_have_the_table_of_exit_codes(sandbox):
    """One table, in three places."""
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.+?) \|$", page, re.MULTILINE)
    tables = ((("--help",), EXIT_CODES), (("exec", "--help"), EXEC_CODES))
    tables += ((("terminal", "--help"), TERMINAL_CODES),)
    table = [(str(code), text) for _, codes in tables for code, text in codes.items()]
    plain = [(code, text.replace("`", "'").rstrip(".")) for code, text in rows]

    assert plain == table
    for words, codes in tables:
        shown = sandbox(*words).out
        for code, text in codes.items():
            assert f"  {code:>3}  {text}\n" in shown


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("apply s --force a -y b", {"paths": ["a", "b"], "force": True, "yes": True}),
        ("apply s a -- -b", {"paths": ["a", "-b"]}),
        ("stop a --grace 3 b", {"sandboxes": ["a", "b"], "grace": 3.0}),
        ("exec s ls -la --json", {"argv": ["ls", "-la", "--json"], "json": False}),
        ("exec --json s -- ls -- x", {"argv": ["ls", "--", "x"], "json": True}),
        ("exec s --cwd /x --env A=b ls", {"argv": ["ls"], "cwd": "/x", "env": ["A=b"]}),
        ("exec --env=A=b s ls --env", {"argv": ["ls", "--env"], "env": ["A=b"]}),
        ("terminal s --list", {"argv": [], "list": True}),
        ("terminal s --session x -- vim --list", {"argv": ["vim", "--list"], "list": False}),
    ],
)
def test_options_may_stand_anywhere_but_after_a_program(words, expected):
    """What comes after exec's sandbox is the program's, as with docker exec and ssh."""
    arguments = vars(parse_arguments(words.split()))

    assert {name: arguments[name] for name in expected} == expected


def test_exec_without_a_program_says_what_to_type(sandbox):
    """With the sandbox that was named."""
    assert "say what to run: jupyter sandbox exec s PROGRAM" in sandbox("exec", "s").err


def test_an_error_is_a_line_and_what_to_do(sandbox):
    """No traceback; with --json the error's stable code."""
    plain = sandbox("stop", "nothing")
    as_json = sandbox("diff", "nothing", "--json")

    assert plain.code == as_json.code == 3
    assert plain.err.splitlines()[0] == "jupyter sandbox: No sandbox 'nothing' exists."
    assert "list" in plain.err.splitlines()[1]
    assert as_json.json["error"]["code"] == "SANDBOX_NOT_FOUND"


@pytest.mark.parametrize(
    "words",
    [(), ("nonsense",), ("exec", "x"), ("stop",), ("destroy", "x", "--all"), ("discard", "x")],
)
def test_wrong_usage_ends_with_two(sandbox, words):
    """Whoever finds the mistake, argparse or we."""
    assert sandbox(*words).code == 2


def test_text_of_a_sandbox_cannot_act_on_the_terminal():
    """Escape sequences, line feeds and bytes that are no text are shown, not sent."""
    assert printable("a\x1b[2Jb\nc\udcff\u202ed é") == "a\\x1b[2Jb\\nc\\udcff\\u202ed é"


def test_sizes_are_for_people():
    """Decimal units, one digit after the point."""
    assert [size_text(n) for n in (0, 999, 1500, 2_000_000)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "2.0 MB",
    ]


def test_a_reader_that_goes_ends_the_command_quietly(home):
    """As in ``jupyter sandbox list --json | head -0``."""
    script = (
        "import sys; sys.stdin.readline()\n"
        "from sandbox_kernel.cli import main\n"
        "sys.exit(main(['list', '--json']))"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    writer = subprocess.Popen([sys.executable, "-c", script], **pipes)
    writer.stdout.close()
    _, err = writer.communicate(b"\n", timeout=30)

    assert b"Traceback" not in err


def test_doctor_finds_this_machine_fit(sandbox):
    """These tests need an engine, so it must be well here; the answer names what was looked at."""
    ended = sandbox("doctor", "--json")

    found = {finding["name"]: finding for finding in ended.json}
    assert {"bubblewrap", "isolation", "layers", "data folder", "kernelspec"} <= set(found)
    assert all(finding["ok"] for finding in found.values() if finding["required"])
    assert ended.code == 0


def test_doctor_names_cause_and_mend(sandbox, monkeypatch):
    """An executable that is not there is one of the things that can be wrong."""
    wrong = {
        "BubblewrapEngine": {"executable": "/no/bwrap"},
        "DockerEngine": {"host": "unix:///no/docker.sock"},
    }
    monkeypatch.setenv("SANDBOX_CONFIG", json.dumps(wrong))

    ended = sandbox("doctor")

    assert ended.code == 5
    assert ended.out.splitlines()[0].startswith("BAD   bubblewrap: ")
    assert ended.out.splitlines()[1].startswith("      ")


@pytest.mark.parametrize("engine", ["docker", "auto"])
def test_doctor_tries_docker(sandbox, monkeypatch, engine):
    """For real; where bubblewrap does not work and Docker does, that will do."""
    need_docker()
    settings = {
        "SandboxManager": {"engine": engine},
        "BubblewrapEngine": {"executable": "/no/bwrap"},
        "DockerEngine": {"host": docker.HOST, "image": docker.IMAGE},
    }
    monkeypatch.setenv("SANDBOX_CONFIG", json.dumps(settings))

    ended = sandbox("doctor", "--json")

    found = {finding["name"]: finding for finding in ended.json}
    assert "reached by: unix socket" in found["engine docker"]["detail"]
    assert "memory_bytes, cpus, processes" in found["engine docker"]["detail"]
    assert ("bubblewrap" in found) == (engine == "auto")
    assert ended.code == 0


def run_in_shell(script: str) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-m", "sandbox_kernel.cli"]
    return subprocess.run(
        ["bash", "-c", script.replace("SANDBOX", shlex.join(words))],
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("words", ["list", "list --json", "destroy nothing --json"])
def test_a_full_disk_for_the_output_is_an_error_with_its_reason(home, words):
    """Also where the output is only written at the end; a traceback helps nobody."""
    ended = run_in_shell(f"SANDBOX {words} >/dev/full")

    assert ended.returncode == 6
    assert ended.stderr == b"jupyter sandbox: No space left on device\n"


def test_what_only_looks_loads_no_event_loop_and_nothing_of_jupyter(home):
    """People and completion wait for these."""
    script = (
        "import sys\n"
        "from sandbox_kernel.cli import main\n"
        "for words in ('list', 'stats', 'logs x', 'ports list x', 'gc --dry-run'):\n"
        "    main(words.split())\n"
        "slow = {'asyncio', 'jupyter_core', 'jupyter_client', 'traitlets', 'tornado', 'tqdm'}\n"
        "sys.exit(', '.join(slow & set(sys.modules)) or 0)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )

    assert ended.returncode == 0, ended.stderr


def test_closed_streams_are_the_null_device(home):
    """No file that the command opens gets the number of a standard stream."""
    ended = run_in_shell("SANDBOX destroy nothing --yes <&- >&- 2>&-")

    assert (ended.returncode, ended.stdout, ended.stderr) == (3, b"", b"")
    assert run_in_shell("SANDBOX list 2>&-").stdout == b"There are no sandboxes.\n"


def test_paths_are_not_called_required(capsys: pytest.CaptureFixture[str]) -> None:
    """Without paths `apply` takes all changes over; only the sandbox has to be named."""
    with pytest.raises(SystemExit):
        parse_arguments(["apply"])

    assert capsys.readouterr().err.endswith("arguments are required: SANDBOX\n")
