"""The output of real full-screen programs, recorded from a real PTY."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import time
from pathlib import Path

from sandbox_runtime.pty import open_pty

_DEADLINE = 20.0

Keys = list[tuple[bytes, bytes]]
"""What is typed, and what the output must then come to hold."""


def record(
    argv: list[str], keys: Keys, folder: Path, *, cols: int = 80, rows: int = 24
) -> list[bytes]:
    """Return the output of a program, in pieces: one before the first keys and one after each.

    The keys must end the program.  A program that is not installed is an error, as is one that
    does not say what it should.
    """
    path = shutil.which(argv[0])
    assert path, f"{argv[0]} is not installed"
    master, slave, _ = open_pty(cols, rows)
    env = {
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
    }
    env |= {"TMUX_TMPDIR": str(folder), "PS1": "$ "}
    process = subprocess.Popen(
        ["setsid", "--ctty", path, *argv[1:]],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=env,
        cwd=folder,
    )
    os.close(slave)
    pieces: list[bytes] = []
    try:
        for typed, wanted in keys:
            os.write(master, typed)
            pieces.append(_read_until(master, wanted))
        pieces.append(_read_until(master, None))
        process.wait(timeout=_DEADLINE)
    finally:
        os.close(master)
        process.kill()
        process.wait()
    return pieces


def _read_until(master: int, wanted: bytes | None) -> bytes:
    """Read until the text has come and the program rests; None reads to the end."""
    output = b""
    deadline = time.monotonic() + _DEADLINE
    while True:
        found = wanted is not None and wanted in output
        rest = 0.1 if found else deadline - time.monotonic()
        assert rest > 0, f"no {wanted!r} in {output[-2000:]!r}"
        if not select.select([master], [], [], rest)[0]:
            if found:
                return output
            continue
        try:
            data = os.read(master, 65536)
        except OSError:  # the program has closed the terminal
            data = b""
        if not data:
            assert wanted is None or found, f"ended without {wanted!r}: {output[-2000:]!r}"
            return output
        output += data
