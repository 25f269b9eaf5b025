"""Work in a forked child: answers, errors, and a child that ends early."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from sandbox_kernel.errors import EngineUnavailableError, SandboxError
from sandbox_kernel.kernel.aside import Aside

# The relay forks before it has threads; other tests may have started some in this process.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def test_the_answer_comes_back_and_what_the_work_changed_does_not() -> None:
    def work() -> tuple[int, list[str]]:
        sys.modules["left_behind"] = sys
        return os.getpid(), ["a", "b"]

    pid, answer = Aside(work).result()

    assert pid != os.getpid()
    assert answer == ["a", "b"]
    assert "left_behind" not in sys.modules
    assert not psutil.pid_exists(pid), "reaped"


def test_an_answer_larger_than_a_pipe_arrives_whole() -> None:
    assert Aside(lambda: b"x" * 3_000_000).result() == b"x" * 3_000_000


def test_this_process_goes_on_meanwhile(tmp_path: Path) -> None:
    """The child waits for something that is done after it has started."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    aside = Aside(fifo.read_text)

    fifo.write_text("said later")

    assert aside.result() == "said later"


def test_an_error_of_ours_keeps_its_class_words_and_hint() -> None:
    def work() -> None:
        raise EngineUnavailableError("bubblewrap", "it is missing", "Install it.")

    with pytest.raises(EngineUnavailableError) as caught:
        Aside(work).result()

    assert "it is missing" in caught.value.message
    assert caught.value.hint == "Install it."


def test_a_fault_is_told_once_by_a_traceback_and_raises(capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        raise ZeroDivisionError("a fault")

    with pytest.raises(SandboxError, match="ended before it was done"):
        Aside(work).result()

    assert capfd.readouterr().err.count("ZeroDivisionError: a fault") == 1


def test_a_killed_child_raises() -> None:
    with pytest.raises(SandboxError, match="ended before it was done"):
        Aside(lambda: os.kill(os.getpid(), signal.SIGKILL)).result()


def test_a_signal_to_both_is_met_once() -> None:
    """The child does not write into the parent's wake-up pipe."""
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    earlier = signal.set_wakeup_fd(write)
    handler = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        Aside(lambda: os.kill(os.getpid(), signal.SIGUSR1)).result()
        with pytest.raises(BlockingIOError):
            os.read(read, 1)
    finally:
        signal.signal(signal.SIGUSR1, handler)
        signal.set_wakeup_fd(earlier)
        os.close(read)
        os.close(write)
