"""Hints: an error of the sandbox's making gets one line, every other error none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.engines.base import FolderMode
from sandbox_kernel.kernel.hints import (
    Facts,
    death,
    hint_for,
    network_hint,
    tells_of_no_network,
)

OPEN = Facts(network=True, notebook_folder="/data/nb")
CLOSED = Facts(
    notebook_folder="/data/nb",
    memory_bytes=1 << 30,
    processes=64,
    file_bytes=1 << 20,
    python_prefix="/venv",
    config_file="/home/ada/.jupyter/jupyter_sandbox_config.py",
    sandbox_id="nb-1",
)


@pytest.mark.parametrize(
    ("ename", "evalue", "setting"),
    [
        ("gaierror", "[Errno -3] Temporary failure in name resolution", "network"),
        ("URLError", "<urlopen error [Errno -2] Name or service not known>", "network"),
        ("OSError", "[Errno 101] Network is unreachable", "network"),
        ("MemoryError", "", "memory_bytes"),
        ("OSError", "[Errno 12] Cannot allocate memory", "memory_bytes"),
        ("RuntimeError", "can't start new thread", "processes"),
        ("BlockingIOError", "[Errno 11] Resource temporarily unavailable", "processes"),
        ("OSError", "[Errno 27] File too large", "file_bytes"),
        ("OSError", "[Errno 28] No space left on device", "sandbox list"),
        ("ConnectionRefusedError", "[Errno 111] Connection refused", "network"),
        ("ConnectionError", "Max retries exceeded with url: /simple (Caused by ...)", "network"),
        *(
            (
                "FileNotFoundError",
                f"[Errno 2] No such file or directory: '{path}'",
                "beside the notebook",
            )
            for path in (
                "/home/me/data.csv",
                "../data.csv",
                "sub/../../data.csv",
                "/data/nb/../x.csv",
                "/tmp/data.csv",
                "/home/user/data.csv",
            )
        ),
        ("OSError", "[Errno 30] Read-only file system: '../out.csv'", "/workspace"),
        ("OSError", "[Errno 30] Read-only file system: '/data/out.csv'", "/workspace"),
        ("PermissionError", "[Errno 13] Permission denied: '../out.csv'", "/workspace"),
    ],
)
def test_an_error_the_sandbox_made_names_what_changes_it(
    ename: str, evalue: str, setting: str
) -> None:
    hint = hint_for(ename, evalue, CLOSED)

    assert hint is not None
    assert setting in hint
    assert "\n" not in hint


def test_a_hint_says_where_the_setting_goes_and_how_it_comes_to_hold() -> None:
    """The file of this user, and the very command; a sandbox that ends with its kernel needs none."""
    ends = Facts(config_file="/c/jupyter_sandbox_config.py")

    assert network_hint(CLOSED) == (
        "Sandbox: this sandbox has no network; to change that, put c.SandboxManager.network = True"
        " into /home/ada/.jupyter/jupyter_sandbox_config.py on the host, then run"
        " 'jupyter sandbox stop nb-1' and restart the kernel."
    )
    assert network_hint(ends).endswith("on the host, then start the kernel again.")


def test_a_hint_does_not_repeat_the_path_that_code_asked_for() -> None:
    """Nor does it say whether that exists: code in the sandbox could have made the error up."""
    hint = hint_for("FileNotFoundError", "[Errno 2] No such file: '/home/ada/.ssh/id'", CLOSED)

    assert hint is not None
    assert ".ssh" not in hint


@pytest.mark.parametrize(
    "text",
    [
        b"Retrying ... Failed to resolve 'packages.example' ([Errno -3] Temporary failure in name resolution)",
        b"ERROR: No matching distribution found for frobnicator",
        b"curl: (6) Could not resolve host: packages.example",
        b"fatal: unable to access 'https://x/': Could not resolve host: x",
        b"wget: unable to resolve host address 'x'",
        b"npm error request to https://x failed, reason: getaddrinfo EAI_AGAIN x",
        b"W: Failed to fetch http://x  Temporary failure resolving 'x'",
        b"ERROR: Could not find a suitable TLS CA certificate bundle, invalid path: /etc/ssl/x.crt",
    ],
)
def test_what_programs_write_without_a_network_is_recognised(text: bytes) -> None:
    assert tells_of_no_network(text)
    assert tells_of_no_network(b"x" * 1_000_000 + text)
    assert not tells_of_no_network(text[:12])


@pytest.mark.parametrize(
    ("ename", "evalue"),
    [
        ("ZeroDivisionError", "division by zero"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'typo.csv'"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/data/nb/typo.csv'"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'sub/../typo.csv'"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/home/user/.cache/x'"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/workspace/x'"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/venv/lib/x'"),
        ("PermissionError", "[Errno 13] Permission denied: '/etc/shadow'"),
        ("PermissionError", "[Errno 13] Permission denied: 'mine.csv'"),
        ("KeyError", "'network'"),
        ("", ""),
    ],
)
def test_the_users_own_errors_get_no_hint(ename: str, evalue: str) -> None:
    assert hint_for(ename, evalue, CLOSED) is None


def test_a_sandbox_with_network_or_without_limits_is_not_blamed() -> None:
    assert hint_for("gaierror", "[Errno -3] Temporary failure in name resolution", OPEN) is None
    assert hint_for("MemoryError", "", OPEN) is None


def test_a_folder_that_is_not_shared_is_named_as_the_reason() -> None:
    missing = "[Errno 2] No such file or directory: 'data.csv'"
    none = Facts(folder_mode=FolderMode.NONE)
    refused = Facts(folder_notice="Folder /root is not shared: it is the home. Move it.")
    reading = Facts(notebook_folder="/data/nb", folder_mode=FolderMode.READ)
    written = "[Errno 30] Read-only file system: '/data/nb/out.csv'"

    assert "notebook_folder" in str(hint_for("FileNotFoundError", missing, none))
    assert "it is the home" in str(hint_for("FileNotFoundError", missing, refused))
    assert "/workspace" in str(hint_for("OSError", written, reading))
    assert hint_for("OSError", written, OPEN) is None


@pytest.mark.parametrize(
    ("exit_code", "number", "reason", "expected"),
    [
        (137, 9, "memory_limit", "memory limit (1 GiB)"),
        (137, 9, None, "SIGKILL"),
        (139, 11, None, "SIGSEGV"),
        (140, 12, None, "signal 12"),
        (3, None, None, "exit code 3"),
    ],
)
def test_the_end_of_an_interpreter_is_told_in_words(
    exit_code: int, number: int | None, reason: str | None, expected: str
) -> None:
    text, _ = death(exit_code, number, reason, CLOSED)

    assert expected in text


@given(st.text(max_size=60), st.text(max_size=200))
def test_no_error_text_breaks_the_hints(ename: str, evalue: str) -> None:
    hint_for(ename, evalue, CLOSED)
    hint_for(ename, f"[Errno 2] '{evalue}'", OPEN)


@pytest.mark.parametrize("name", ["ipykernel", "tornado"])
def test_an_image_without_a_kernel(name: str) -> None:
    """The cause and the mend; an import of something else is none of ours."""
    stderr = f"Traceback ...\nModuleNotFoundError: No module named '{name}'\n"

    text, hint = death(1, None, None, CLOSED, stderr=stderr)

    assert "has no IPython kernel" in text
    assert hint is not None
    assert "DockerEngine.image" in hint
    assert death(1, None, None, CLOSED, stderr="No module named 'foo'")[1] is None
