"""The interpreter of a kernel: ``python -m sandbox_runtime.kernel_main``, records on 0 and 1.

`main` moves the two record pipes out of the way, so that no program started by a cell can touch
them, and `run` is what a fork server calls in the same position.
"""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["main", "run"]


def main() -> None:
    """Run a kernel on descriptors 0 and 1 until its input ends or it is told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    in_fd, out_fd = claim_descriptors()
    forget_package_path()
    run(in_fd, out_fd)


def claim_descriptors() -> tuple[int, int]:
    """Take the record pipes away from 0 and 1: /dev/null is put there, and what 2 is.

    Output of C code at this early point goes where errors go; nothing may reach the record pipe.
    """
    import fcntl

    in_fd = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    out_fd = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return in_fd, out_fd


def forget_package_path() -> None:
    """Remove what made this package importable, and the working directory that ``-m`` added."""
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
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    sys.path[:] = [entry for entry in sys.path if entry not in given]


def run(in_fd: int, out_fd: int) -> None:
    """Run a kernel until its input ends or it is told to stop; does not return."""
    from traitlets.config import Config

    from sandbox_kernel.wire.kernel import Channel
    from sandbox_runtime.kernel_app import SandboxKernelApp
    from sandbox_runtime.kernel_pipe import KernelPipe

    SandboxKernelApp.connection_dir.default_value = ""
    app = SandboxKernelApp.instance()
    app.pipe = pipe = KernelPipe(in_fd, out_fd, app.session.header_json)
    config = Config()
    config.Kernel._execute_sleep = 0.0
    app.update_config(config)
    app.initialize(["--log-level=ERROR"])
    kernel = app.kernel

    def begin() -> None:
        pipe.start(kernel.route, os._exit)
        pipe.release()

    from tornado.ioloop import IOLoop

    pipe.put(Channel.META, (), (b'{"op":"ready"}',))
    IOLoop.current().add_callback(begin)
    app.start()
    pipe.flush(5.0)


if __name__ == "__main__":
    main()
