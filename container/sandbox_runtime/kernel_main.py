"""The interpreter of a kernel: ``python -m sandbox_runtime.kernel_main``, records on 0 and 1.

`main` moves the two record pipes out of the way, so that no program started by a cell can touch
them, and `run` is what a fork server calls in the same position.
"""

# ruff: noqa: PLC0415 - the descriptors and the path are set up before anything slow is imported
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import fcntl
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox_runtime.kernel_app import SandboxKernelApp

_GRACE = 1.0
"""Seconds that an interpreter has for its exit handlers once nobody listens."""

_FAREWELL = 2.0
"""Seconds that the last output has to leave the process."""

_SHUTDOWN = 2.0
"""Seconds that children have to end when a shutdown was asked for."""

__all__ = ["build", "claim_descriptors", "forget_package_path", "main", "run"]


def main() -> None:
    """Run a kernel on descriptors 0 and 1 until its input ends or it is told to stop."""
    # Until a cell runs there is nothing to interrupt.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    in_fd, out_fd, stderr_fd = claim_descriptors()
    forget_package_path()
    run(in_fd, out_fd, stderr_fd)


def claim_descriptors() -> tuple[int, int, int]:
    """Move the record pipes and the error output to where no program of a cell gets them.

    /dev/null takes the place of 0, and 2 that of 1: what C code prints at this early point goes
    where errors go.
    """
    in_fd, out_fd, stderr_fd = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in range(3))
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return in_fd, out_fd, stderr_fd


def forget_package_path() -> None:
    """Remove what made this package importable, and the working directory that ``-m`` added."""
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]  # first: a notebook may lie beside a module of any name
    import sandbox_kernel
    import sandbox_runtime

    roots = {
        os.path.dirname(os.path.dirname(os.path.abspath(module.__file__ or "")))
        for module in (sandbox_kernel, sandbox_runtime)
    }
    python_path = os.environ.get("PYTHONPATH", "")
    kept = [entry for entry in python_path.split(os.pathsep) if entry and entry not in roots]
    if kept:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        os.environ.pop("PYTHONPATH", None)
    given = set(python_path.split(os.pathsep)) & roots
    sys.path[:] = [entry for entry in sys.path if entry not in given]


def build(in_fd: int, out_fd: int, stderr_fd: int, *, scout: bool = False) -> SandboxKernelApp:
    """Return a kernel that is ready to start.

    Parameters
    ----------
    in_fd, out_fd : int
        The record pipes.
    stderr_fd : int
        Where to report what no client can be told.
    scout : bool
        Leave the user's configuration, start-up files and history alone: nobody will use it.
    """
    import atexit

    import ipykernel
    from traitlets.config import Config

    from sandbox_runtime.kernel_app import SandboxKernelApp
    from sandbox_runtime.kernel_pipe import KernelPipe

    # What a program finds there in a local kernel.
    sys.argv = [os.path.join(os.path.dirname(ipykernel.__path__[0]), "ipykernel_launcher.py")]
    app = SandboxKernelApp.instance()
    app.pipe = KernelPipe(in_fd, out_fd, app.session.header_json)
    app.stderr_fd = stderr_fd
    # Registered before all others, so it runs last: what exit handlers print still arrives.
    atexit.register(app.pipe.flush, _FAREWELL)
    config = Config()
    config.Kernel._execute_sleep = 0.0  # noqa: SLF001 - the only way to switch it off
    # IPython writes its history each so many cells, and whenever somebody asks for it.
    config.HistoryManager.db_cache_size = 1000
    if scout:
        config.HistoryManager.hist_file = ":memory:"
        for step in ("load_config_file", "init_extensions", "init_code"):
            setattr(app, step, lambda *_, **__: None)
    app.update_config(config)
    app.initialize(["--log-level=ERROR"])
    return app


def run(in_fd: int, out_fd: int, stderr_fd: int) -> None:
    """Run a kernel until its input ends or it is told to stop; arguments as of `build`."""
    import threading

    from tornado.ioloop import IOLoop

    from sandbox_kernel.wire.kernel import Channel
    from sandbox_runtime.kernel_crash import deliver_last_words

    app = build(in_fd, out_fd, stderr_fd)
    pipe = app.pipe
    deliver_last_words(pipe.flush)
    forget_own_modules()
    pipe.put(Channel.META, (), (b'{"op":"ready"}',))

    def end(status: int, why: str) -> None:
        """End the process; on the pipe's thread, when there is nobody to talk to."""
        if why:
            os.write(stderr_fd, f"{why}\n".encode())
        app.kernel.io_loop.add_callback(app.kernel.io_loop.stop)
        threading.main_thread().join(_GRACE)
        os._exit(status)

    def begin() -> None:
        """Take messages: the kernel has registered what handles them."""
        pipe.start(app.kernel.route, end)
        pipe.release()

    IOLoop.current().add_callback(begin)
    app.start()
    app.kernel.wait_for_shutdown(_SHUTDOWN)


def forget_own_modules() -> None:
    """Let a cell that imports this project get what is installed, not the runtime's share of it."""
    for name in list(sys.modules):
        if name.partition(".")[0] in ("sandbox_kernel", "sandbox_runtime"):
            del sys.modules[name]


if __name__ == "__main__":
    main()
