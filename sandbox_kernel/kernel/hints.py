"""From an error to one line that says what of the sandbox made it, and what changes that; pure.

Programs such as pip raise nothing in the cell: for them what they wrote stands for the error.

Nothing here looks at the host's files: what exists there must not be learnt through a hint.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from sandbox_kernel.engines.base import FolderMode

__all__ = [
    "NO_KERNEL",
    "NO_KERNEL_MEND",
    "Facts",
    "death",
    "hint_for",
    "lacks_kernel",
    "network_hint",
    "tells_of_no_network",
]

_NETWORK_WORDS = (
    "name or service not known",
    "temporary failure in name resolution",
    "network is unreachable",
    "no address associated with hostname",
    "name resolution",
    "nodename nor servname",
    "could not resolve host",
    "max retries exceeded with url",
    "we couldn't connect to 'http",
    "could not find a suitable tls ca certificate bundle",
)
# What pip, uv, conda, curl, wget, git, apt and npm write in vain; they raise nothing in the cell.
_WRITTEN = (
    b"Temporary failure in name resolution",
    b"Temporary failure resolving",
    b"Name or service not known",
    b"Network is unreachable",
    b"ould not resolve host",
    b"nable to resolve host",
    b"No matching distribution found for",
    b"EAI_AGAIN",
    b"ould not find a suitable TLS CA certificate bundle",
)
_LOOKED_AT = 8 << 10

# The text is the sandbox's: of digits without end `int` would make an error.
_ERRNO = re.compile(r"\[Errno ([0-9]{1,6})\]")
_PATH = re.compile(r"""['"](/[^'"\n]*)['"]""")
_RELATIVE = re.compile(r"""['"]([^'"\n]+)['"]""")
# Folders whose files never come from the host, and nobody expects them to.
_INSIDE = ("/workspace", "/usr", "/etc", "/proc", "/dev", "/sys", "/opt")
_OWN = ("/tmp", "/home/user")  # noqa: S108
"""Folders that exist on the host as well, or seem to."""

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
    config_file : str
        The host's file for the settings.
    sandbox_id : str
        The sandbox to stop for a change; empty for one that ends with its kernel.
    """

    network: bool = False
    notebook_folder: str | None = None
    folder_mode: FolderMode = FolderMode.OVERLAY
    folder_notice: str | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    file_bytes: int | None = None
    python_prefix: str = ""
    config_file: str = "jupyter_sandbox_config.py"
    sandbox_id: str = ""


def hint_for(ename: str, evalue: str, facts: Facts) -> str | None:
    """Return the line to add to an error, or None when the sandbox is not its reason."""
    low = evalue.lower()
    number = _errno(evalue)
    if not facts.network:
        if any(word in low for word in _NETWORK_WORDS) or ename == "gaierror":
            return network_hint(facts)
        if number in (100, 101):
            return network_hint(facts)
        if ename == "ConnectionRefusedError":
            return _set(
                "this sandbox has no network, and its localhost is not that of the host",
                "network = True",
                facts,
            )
    if number in (28, 122):
        return _line(
            "the disk behind the sandbox, or its quota, is full",
            "free space on the host ('jupyter sandbox list' shows the sandboxes and their size)",
        )
    if number == 27 and facts.file_bytes is not None:
        return _set(
            f"a file here may have at most {_size(facts.file_bytes)}", "file_bytes = ...", facts
        )
    if (ename == "MemoryError" or number == 12) and facts.memory_bytes is not None:
        return _set(
            f"this sandbox may use {_size(facts.memory_bytes)} of memory",
            "memory_bytes = ...",
            facts,
        )
    if (number == 11 and ename == "BlockingIOError") or "can't start new thread" in low:
        limit = "" if facts.processes is None else f"at most {facts.processes} "
        return _set(
            f"this sandbox may run {limit or 'only so many '}processes and threads",
            "processes = ...",
            facts,
        )
    if number in (13, 30):
        return _read_only(number, evalue, facts)
    if ename in ("FileNotFoundError", "NotADirectoryError") or number == 2:
        return _missing(evalue, facts)
    return None


def network_hint(facts: Facts) -> str:
    """Return the line for a program that wanted the network."""
    return _set("this sandbox has no network", "network = True", facts)


def tells_of_no_network(text: bytes) -> bool:
    """Whether a program's output says that it did not reach the network.

    Of a flood only beginning and end are looked at, so that it costs the flood nothing.
    """
    if len(text) > 2 * _LOOKED_AT:
        text = text[:_LOOKED_AT] + text[-_LOOKED_AT:]
    for word in _WRITTEN:  # noqa: SIM110  any() of a generator takes ten times as long
        if word in text:
            return True
    return False


def _missing(evalue: str, facts: Facts) -> str | None:
    found = _PATH.search(evalue)
    path = posixpath.normpath(found[1]) if found else None
    if path is None:
        # A relative path: beside the notebook, as far as the user knows, unless it leads up.
        if facts.notebook_folder is None or facts.folder_mode is FolderMode.NONE:
            return _not_shared(facts)
        relative = _RELATIVE.search(evalue)
        if relative and posixpath.normpath(relative[1]).split("/")[0] == "..":
            return _beside_only(facts)
        return None
    shown = facts.notebook_folder if facts.folder_mode is not FolderMode.NONE else None
    if any(_is_below(path, folder) for folder in (*_INSIDE, facts.python_prefix, shown) if folder):
        return None
    own = next((folder for folder in _OWN if _is_below(path, folder)), None)
    if own is not None:
        # Programs look for settings of theirs there, and are well without.
        if path.removeprefix(own).startswith("/."):
            return None
        return _share(f"{own} is the sandbox's own, and not that of the host", facts)
    return _beside_only(facts) if shown else _not_shared(facts)


def _beside_only(facts: Facts) -> str:
    return _share(f"of the host's folders the sandbox sees only {facts.notebook_folder}", facts)


def _share(reason: str, facts: Facts) -> str:
    # The path is the sandbox's word: naming its folder here would ask the user to share any.
    return _line(
        reason,
        "put the file beside the notebook, or show its folder read-only:"
        f" {_put('BubblewrapEngine.extra_paths', ' = [...]', facts)}",
    )


def _not_shared(facts: Facts) -> str:
    if facts.folder_notice is not None:
        return f"Sandbox: {facts.folder_notice}"
    return _set(
        "the notebook's folder is not shared with this sandbox",
        "notebook_folder = 'overlay'",
        facts,
    )


def _read_only(number: int, evalue: str, facts: Facts) -> str | None:
    found = _PATH.search(evalue)
    relative = _RELATIVE.search(evalue)
    folder = facts.notebook_folder
    if folder is None:
        return None
    leads_up = relative is not None and posixpath.normpath(relative[1]).startswith("..")
    if leads_up or (found is not None and not _is_below(posixpath.normpath(found[1]), folder)):
        inside = found is not None and any(_is_below(found[1], each) for each in _INSIDE)
        if number == 13 and inside:
            return None
        places = ", ".join([folder] * (facts.folder_mode is not FolderMode.READ) + ["/workspace"])
        return f"Sandbox: only {places}, /home/user and /tmp can be written here."
    if facts.folder_mode is not FolderMode.READ:
        return None
    return _line(
        "the notebook's folder is shared for reading only",
        "write to /workspace, or "
        + _put("SandboxManager.notebook_folder", " = 'overlay' or 'write'", facts),
    )


NO_KERNEL = "The sandbox has no IPython kernel: its Python lacks the package ipykernel."
NO_KERNEL_MEND = (
    "add it ('pip install ipykernel' in its Dockerfile, or build one with container/build.sh) and"
    " name the new image: DockerEngine.image"
)


# What `sandbox_runtime.kernel_main` imports, in whichever order.
_OF_A_KERNEL = ("ipykernel", "IPython", "tornado", "traitlets", "zmq")


def lacks_kernel(stderr: str) -> bool:
    """Whether an interpreter ended since it could not import what it was started for."""
    return any(f"No module named {name!r}" in stderr for name in _OF_A_KERNEL)


def death(
    exit_code: int,
    signal_number: int | None,
    reason: str | None,
    facts: Facts,
    *,
    stderr: str = "",
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
    stderr : str
        What it last wrote to its own standard error.
    """
    if exit_code and lacks_kernel(stderr):
        return NO_KERNEL, _line("the image comes without it", NO_KERNEL_MEND)
    if reason == "memory_limit":
        limit = f" ({_size(facts.memory_bytes)})" if facts.memory_bytes is not None else ""
        return (
            f"The interpreter was killed (SIGKILL): the sandbox reached its memory limit{limit}.",
            _set("the memory limit", "memory_bytes = ...", facts),
        )
    if signal_number is not None:
        name = _SIGNALS.get(signal_number, f"signal {signal_number}")
        text = f"The interpreter was killed by {name}."
        if signal_number == 9:
            return text, _line(
                "SIGKILL comes from code inside or from the host when memory runs out",
                "look at the host's memory, or limit it: "
                + _put("SandboxManager.memory_bytes", " = ...", facts),
            )
        return text, None
    return f"The interpreter ended with exit code {exit_code}.", None


def _line(reason: str, mend: str) -> str:
    return f"Sandbox: {reason}; to change that, {mend}."


def _set(reason: str, assignment: str, facts: Facts) -> str:
    """Return the line for a reason that one setting of the manager changes."""
    name, _, value = assignment.partition(" ")
    return _line(reason, _put(f"SandboxManager.{name}", f" {value}", facts))


def _put(setting: str, value: str, facts: Facts) -> str:
    """Say how to change a setting so that it holds."""
    then = (
        f"run 'jupyter sandbox stop {facts.sandbox_id}' and restart the kernel"
        if facts.sandbox_id
        else "start the kernel again"
    )
    return f"put c.{setting}{value} into {facts.config_file} on the host, then {then}"


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
