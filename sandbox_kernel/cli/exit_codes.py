"""The exit codes of every command, in one table: for the commands, their help and the page."""

from __future__ import annotations

__all__ = [
    "BUSY",
    "EXEC_CODES",
    "EXIT_CODES",
    "FAILED",
    "HUNG_UP",
    "INTERRUPTED",
    "NOT_EXECUTABLE",
    "NOT_FOUND",
    "NO_ENGINE",
    "NO_PROGRAM",
    "NO_SANDBOX",
    "OK",
    "STORAGE",
    "TERMINAL_CODES",
    "TIMED_OUT",
    "USAGE",
]

OK = 0
FAILED = 1
USAGE = 2
"""argparse's own code for wrong arguments, and ours for arguments that cannot be honoured."""
NOT_FOUND = 3
BUSY = 4
NO_ENGINE = 5
STORAGE = 6
HUNG_UP = 129
"""128 plus SIGHUP."""
INTERRUPTED = 130
"""What shells give a program that ended by Ctrl-C."""

# What shells and timeout(1) use for these ends; 125 is what docker uses for its own failures.
TIMED_OUT = 124
NO_SANDBOX = 125
NOT_EXECUTABLE = 126
NO_PROGRAM = 127

EXIT_CODES = {
    OK: "done",
    FAILED: "it failed: a cell, a change not taken over, changes found by 'diff --exit-code'",
    USAGE: "wrong arguments, or a setting or path that cannot be honoured; nothing was done",
    NOT_FOUND: "there is no such sandbox",
    BUSY: "the sandbox is busy, or runs and must not",
    NO_ENGINE: "no engine works here, the sandbox did not start, or doctor found a fault",
    STORAGE: "a file of the host cannot be read or written, or its disk is full",
    INTERRUPTED: "ended by Ctrl-C",
}
"""Of every command but ``exec`` and ``terminal``."""

EXEC_CODES = {
    USAGE: EXIT_CODES[USAGE],
    TIMED_OUT: "the program was killed after --timeout",
    NO_SANDBOX: "the sandbox failed, not the program",
    NOT_EXECUTABLE: "the program may not be executed",
    NO_PROGRAM: "there is no such program",
    INTERRUPTED: EXIT_CODES[INTERRUPTED],
}
"""Of ``exec``; every other code is the program's, 128 plus the signal if one ended it."""

TERMINAL_CODES = {
    OK: "detached",
    USAGE: "wrong arguments, no such folder, or input or output is no terminal; nothing was done",
    NO_SANDBOX: "the sandbox failed or has stopped, or there is no such terminal",
    NOT_EXECUTABLE: EXEC_CODES[NOT_EXECUTABLE],
    NO_PROGRAM: EXEC_CODES[NO_PROGRAM],
    HUNG_UP: "the local terminal has gone; the one in the sandbox runs on",
}
"""Of ``terminal``; every other code is the program's, 128 plus the signal if one ended it."""
