"""Starts kernels by forking: everything a kernel imports is here already.

``python -m sandbox_runtime.forkserver --fd N`` answers requests on a stream socket.  A request is
a line of JSON, ``{"env": ..., "cwd": ..., "kernel_id": ...}``, sent along with three descriptors:
the kernel's input, output and error output.  The answer is a line ``{"pid": ...}``, or
``{"error": ...}``.  The server ends when its socket is closed.

The server itself never has a second thread, an event loop or a socket of a kernel: a fork copies
them in a state nobody can use.
"""

# ruff: noqa: PLC0415 - what is imported when is what this module is about

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
import types

from sandbox_runtime.kernel_main import build, claim_descriptors, forget_package_path, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["main", "preload", "serve"]


def main() -> None:
    """Serve until the socket is closed; in a forked child, be the kernel."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.path[0] in ("", os.getcwd()):  # added by -m; kernels have a directory of their own
        del sys.path[0]
    fd = int(sys.argv[sys.argv.index("--fd") + 1])
    before = dict(os.environ)
    preload()
    # What modules put there when they are imported, each kernel would have put there too.
    added = {name: value for name, value in os.environ.items() if name not in before}
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=fd) as requests:
        kernel = serve(requests, added)
    if kernel is not None:
        kernel()


def preload() -> None:
    """Import every module that a kernel has once it has run its first cells.

    A scout finds out which these are: a fork that becomes a kernel of no one, runs a little, and
    tells its modules.
    """
    # What takes long need not be imported twice.
    with contextlib.suppress(ImportError):
        pass
    import sandbox_runtime.kernel_app  # noqa: F401

    reading, writing = os.pipe()
    scout = os.fork()
    if scout == 0:
        os.close(reading)
        status = 1
        try:
            os.write(writing, "\n".join(_scout()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading) as pipe:
        names = pipe.read().split()
    os.waitpid(scout, 0)
    for name in names:
        # A module that cannot be imported by its name alone is left to the kernels.
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _scout() -> list[str]:
    """Return the modules of a kernel that has run, failed and completed something."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    app: Any = build(*claim_descriptors(), scout=True)
    for code in ("1", "1/0", "print(1)", "import asyncio\nawait asyncio.sleep(0)"):
        app.shell.run_cell(code)
    app.kernel.do_complete("import o", 8)
    app.kernel.do_inspect("print", 5)
    return [name for name in sys.modules if name != "__main__"]


def serve(requests: socket.socket, added: dict[str, str]) -> Callable[[], None] | None:
    """Answer requests; returns None at their end, and in each forked child what it has to do.

    Parameters
    ----------
    requests : socket
        Where the runtime asks.
    added : dict
        Variables that a kernel's imports add to the environment it was given.
    """
    buffer = b""
    fds: list[int] = []
    while True:
        data, more, _, _ = socket.recv_fds(requests, 1 << 16, 16, socket.MSG_CMSG_CLOEXEC)
        fds += more
        if not data:
            return None
        buffer += data
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            mine, fds = fds[:3], fds[3:]
            try:
                answer = _fork(json.loads(line), added, mine)
            except (OSError, ValueError, KeyError, TypeError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            finally:
                if not callable(answer):
                    for fd in mine:
                        os.close(fd)
            if callable(answer):
                return answer
            requests.sendall(json.dumps(answer).encode() + b"\n")


def _fork(
    request: Any, added: dict[str, str], fds: list[int]
) -> dict[str, Any] | Callable[[], None]:
    """Fork a kernel that is nobody's child here; in it, return what it has to do."""
    env = {**request["env"], **{k: v for k, v in added.items() if k not in request["env"]}}
    cwd = str(request["cwd"])
    if len(fds) != 3:
        raise ValueError(f"{len(fds)} descriptors instead of 3")
    if not os.path.isdir(cwd):
        raise NotADirectoryError(f"no such directory: {cwd}")
    reading, writing = os.pipe2(os.O_CLOEXEC)
    middle = os.fork()
    if middle == 0:
        try:
            if os.fork():
                os._exit(0)
        except OSError:
            os._exit(1)
        # The leader of its group before anybody knows its number.
        os.setsid()
        os.write(writing, str(os.getpid()).encode())
        os.close(writing)
        os.close(reading)
        return lambda: _become_kernel(env, cwd, fds)
    os.close(writing)
    with open(reading) as pipe:
        pid = pipe.read()
    os.waitpid(middle, 0)
    if not pid:
        raise OSError("the kernel could not be forked")
    return {"pid": int(pid)}


def _become_kernel(env: dict[str, str], cwd: str, fds: list[int]) -> None:
    """Be what a freshly started interpreter would be, and run the kernel."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
        _take_environment(env)
        os.chdir(cwd)
        random.seed()
        main_module = types.ModuleType("__main__")
        sys.modules["__main__"] = main_module
        if "multiprocessing.process" in sys.modules:
            process: Any = sys.modules["multiprocessing.process"].current_process()
            process.authkey = os.urandom(32)
        sys.orig_argv[1:] = ["-m", "ipykernel_launcher"]
        descriptors = claim_descriptors()
        forget_package_path()
    except BaseException:  # noqa: BLE001 - nothing of the server's stack may go on in the child
        traceback.print_exc()
        os._exit(1)
    run(*descriptors)


def _take_environment(env: dict[str, str]) -> None:
    """Replace the environment, and what this interpreter derived from it when it started."""
    old = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    new = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    rest = [entry for entry in sys.path if entry not in old]
    sys.path[:] = [*new, *(entry for entry in rest if entry not in new)]


if __name__ == "__main__":
    main()
