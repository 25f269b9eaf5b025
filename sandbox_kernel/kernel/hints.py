"""From an error to one line that says what of the sandbox made it, and what changes that; pure.

Nothing here looks at the host's files: what exists there must not be learnt through a hint.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from sandbox_kernel.engines.base import FolderMode

__all__ = ["Facts", "death", "hint_for"]

_CONFIG = "jupyter_sandbox_config.py"

_NETWORK_WORDS = (
    "name or service not known",
    "temporary failure in name resolution",
    "network is unreachable",
    "no address associated with hostname",
    "name resolution",
    "nodename nor servname",
)
# The text is the sandbox's: of digits without end `int` would make an error.
_ERRNO = re.compile(r"\[Errno ([0-9]{1,6})\]")
_PATH = re.compile(r"""['"](/[^'"\n]*)['"]""")
# The sandbox's own folders, whose files never come from the host.
_INSIDE = ("/workspace", "/home/user", "/tmp", "/usr", "/etc", "/proc", "/dev", "/sys", "/opt")  # noqa: S108

_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV"}
_SIGNALS |= {1: "SIGHUP", 2: "SIGINT", 13: "SIGPIPE", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ"}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of the sandbox.

    Parameters
    ----------
    network : bool
        Whether it reaches the network.
    notebook_folder : str, optional
        The notebook's folder, as it is called on both sides; None if it is not shown inside.
    folder_mode : FolderMode
        How it is shared.
    folder_notice : str, optional
        Why the notebook's folder was asked for and not given, in sentences.
    memory_bytes, processes, file_bytes : int, optional
        The limits.
    python_prefix : str
        The Python environment inside.
    """

    network: bool = False
    notebook_folder: str | None = None
    folder_mode: FolderMode = FolderMode.OVERLAY
    folder_notice: str | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    file_bytes: int | None = None
    python_prefix: str = ""


def hint_for(ename: str, evalue: str, facts: Facts) -> str | None:
    """Return the line to add to an error, or None when the sandbox is not its reason."""
    low = evalue.lower()
    number = _errno(evalue)
    if not facts.network and (
        any(word in low for word in _NETWORK_WORDS) or (ename == "gaierror") or number in (100, 101)
    ):
        return _line(
            "this sandbox has no network",
            f"set c.SandboxManager.network = True in {_CONFIG} and start the sandbox again",
        )
    if number in (28, 122):
        return _line(
            "the disk behind the sandbox, or its quota, is full",
            "free space on the host ('jupyter sandbox list' shows the sandboxes and their size)",
        )
    if number == 27 and facts.file_bytes is not None:
        return _line(
            f"a file here may have at most {_size(facts.file_bytes)}",
            f"raise c.SandboxManager.file_bytes in {_CONFIG}",
        )
    if (ename == "MemoryError" or number == 12) and facts.memory_bytes is not None:
        return _line(
            f"this sandbox may use {_size(facts.memory_bytes)} of memory",
            f"raise c.SandboxManager.memory_bytes in {_CONFIG}",
        )
    if (number == 11 and ename == "BlockingIOError") or "can't start new thread" in low:
        limit = "" if facts.processes is None else f"at most {facts.processes} "
        return _line(
            f"this sandbox may run {limit or 'only so many '}processes and threads",
            f"raise c.SandboxManager.processes in {_CONFIG}, or end some",
        )
    if number == 30 or (number == 13 and facts.folder_mode is FolderMode.READ):
        return _read_only(evalue, facts)
    if ename in ("FileNotFoundError", "NotADirectoryError") or number == 2:
        return _missing(evalue, facts)
    return None


def _missing(evalue: str, facts: Facts) -> str | None:
    found = _PATH.search(evalue)
    path = posixpath.normpath(found[1]) if found else None
    if path is None:
        # A relative path: beside the notebook, as far as the user knows.
        if facts.notebook_folder is None or facts.folder_mode is FolderMode.NONE:
            return _not_shared(facts)
        return None
    if any(_is_below(path, folder) for folder in (*_INSIDE, facts.python_prefix) if folder):
        return None
    if facts.notebook_folder and facts.folder_mode is not FolderMode.NONE:
        if _is_below(path, facts.notebook_folder):
            return None
        return _line(
            f"of the host's folders the sandbox sees only {facts.notebook_folder}",
            "put the file beside the notebook",
        )
    return _not_shared(facts)


def _not_shared(facts: Facts) -> str:
    if facts.folder_notice is not None:
        return f"Sandbox: {facts.folder_notice}"
    return _line(
        "the notebook's folder is not shared with this sandbox",
        f"set c.SandboxManager.notebook_folder = 'overlay' in {_CONFIG}",
    )


def _read_only(evalue: str, facts: Facts) -> str | None:
    found = _PATH.search(evalue)
    if facts.folder_mode is not FolderMode.READ or facts.notebook_folder is None:
        return None
    if found and not _is_below(found[1], facts.notebook_folder):
        return None
    return _line(
        "the notebook's folder is shared for reading only",
        "write to /workspace, or set c.SandboxManager.notebook_folder = 'overlay' or 'write'"
        f" in {_CONFIG}",
    )


def death(
    exit_code: int, signal_number: int | None, reason: str | None, facts: Facts
) -> tuple[str, str | None]:
    """Return why an interpreter ended, in words, and the hint that goes with it.

    Parameters
    ----------
    exit_code : int
        Its code.
    signal_number : int, optional
        The signal that killed it.
    reason : str, optional
        What the runtime knows of it: ``memory_limit`` or ``ended``.
    """
    if reason == "memory_limit":
        limit = f" ({_size(facts.memory_bytes)})" if facts.memory_bytes is not None else ""
        return (
            f"The interpreter was killed (SIGKILL): the sandbox reached its memory limit{limit}.",
            _line("the memory limit", f"raise c.SandboxManager.memory_bytes in {_CONFIG}"),
        )
    if signal_number is not None:
        name = _SIGNALS.get(signal_number, f"signal {signal_number}")
        text = f"The interpreter was killed by {name}."
        if signal_number == 9:
            return text, _line(
                "SIGKILL comes from code inside or from the host when memory runs out",
                f"look at the host's memory, or limit it with c.SandboxManager.memory_bytes"
                f" in {_CONFIG}",
            )
        return text, None
    return f"The interpreter ended with exit code {exit_code}.", None


def _line(reason: str, mend: str) -> str:
    return f"Sandbox: {reason}; to change that, {mend}."


def _errno(evalue: str) -> int | None:
    found = _ERRNO.search(evalue)
    return int(found[1]) if found else None


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _size(count: int | None) -> str:
    if count is None:
        return "unknown"
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:g} {unit}" if unit == "bytes" else f"{value:.4g} {unit}"
        value /= 1024
    return f"{count} bytes"
