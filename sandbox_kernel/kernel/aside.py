"""Work in a forked child, whose memory goes with it."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

from sandbox_kernel.errors import SandboxError

__all__ = ["Aside"]

Answer = TypeVar("Answer")


class Aside(Generic[Answer]):
    """Something a child of this process works out while this process goes on.

    What the work imports and allocates never becomes part of this process: of the modules that
    start a sandbox, some 2 MB would stay for as long as the relay lives, scattered over half-empty
    pages.  The child is a copy, so this process may not have threads yet.

    Parameters
    ----------
    work : callable
        What to do; its answer is pickled.
    """

    def __init__(self, work: Callable[[], Answer]) -> None:
        self._read, write = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if self._pid == 0:
            _be_the_child(work, write)
        os.close(write)

    def result(self) -> Answer:
        """Wait for the child's end and return its answer; to be called once.

        Raises
        ------
        SandboxError
            The one that the work has raised, or that the child was killed or its code is at fault;
            a traceback is on standard error then.
        """
        with open(self._read, "rb") as pipe:
            told = pipe.read()
        os.waitpid(self._pid, 0)
        if not told:
            raise SandboxError("The process that starts the sandbox ended before it was done.")
        answer, error = pickle.loads(told)  # noqa: S301  a copy of this process wrote it
        if error is not None:
            raise SandboxError.from_wire(error)
        result: Answer = answer
        return result


def _be_the_child(work: Callable[[], object], write: int) -> None:
    """Work, tell and end, without a step of what the parent would do at its own end."""
    code = 1
    try:
        # A signal to both is the parent's to meet, and once is enough.
        signal.set_wakeup_fd(-1)
        told: tuple[object, object]
        try:
            told = work(), None
        except SandboxError as error:
            told = None, error.to_wire()
        with open(write, "wb") as pipe:
            pipe.write(pickle.dumps(told, pickle.HIGHEST_PROTOCOL))
        code = 0
    except BrokenPipeError:
        pass  # the parent was killed
    except BaseException:  # noqa: BLE001  nobody above could tell of it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
