"""Sandboxes for notebooks: named, isolated, lasting.  The public surface is loaded on first use.

>>> from sandbox_kernel import get_sandbox
>>> sandbox = get_sandbox("my-sandbox")          # starts nothing
>>> result = await sandbox.exec(["echo", "hi"])  # doctest: +SKIP
>>> result.stdout_text.strip()                   # doctest: +SKIP
'hi'

`sandbox_kernel.sync` has the same names for code without an event loop, `sandbox_kernel.errors` the
error classes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox_kernel.client.files import FileChanges, FileInfo, FileWatchEvent
    from sandbox_kernel.client.git import GitCheckout, GitCheckoutProgress
    from sandbox_kernel.client.options import SandboxOptions
    from sandbox_kernel.client.port_forward import PortForward
    from sandbox_kernel.client.ports import ExposedPort, ListeningPort, PortReady
    from sandbox_kernel.client.process import (
        ExecResult,
        LogMatch,
        Process,
        ProcessExit,
        ProcessLogs,
        ProcessOutput,
    )
    from sandbox_kernel.client.sandbox import Sandbox, get_sandbox, list_sandboxes
    from sandbox_kernel.client.session import Session
    from sandbox_kernel.client.terminal import (
        Terminal,
        TerminalEnd,
        TerminalExit,
        TerminalFailure,
        TerminalOutput,
        TerminalSnapshot,
        TerminalTruncated,
        TerminalView,
    )
    from sandbox_kernel.client.transfer import FolderTransfer, TransferProgress
    from sandbox_kernel.engines.base import FolderMode, Limits, SandboxSpec
    from sandbox_kernel.errors import SandboxError
    from sandbox_kernel.folder.importing import ImportedNotebook, import_notebook
    from sandbox_kernel.manager.activity import Activity, ActivityPage
    from sandbox_kernel.manager.manager import Manager, SandboxInfo
    from sandbox_kernel.manager.settings import Settings, load_settings
    from sandbox_kernel.manager.stats import DiskUsage, SandboxStats

__version__ = "0.1.0"

__all__ = [
    "Activity",
    "ActivityPage",
    "DiskUsage",
    "ExecResult",
    "ExposedPort",
    "FileChanges",
    "FileInfo",
    "FileWatchEvent",
    "FolderMode",
    "FolderTransfer",
    "GitCheckout",
    "GitCheckoutProgress",
    "ImportedNotebook",
    "Limits",
    "ListeningPort",
    "LogMatch",
    "Manager",
    "PortForward",
    "PortReady",
    "Process",
    "ProcessExit",
    "ProcessLogs",
    "ProcessOutput",
    "Sandbox",
    "SandboxError",
    "SandboxInfo",
    "SandboxOptions",
    "SandboxSpec",
    "SandboxStats",
    "Session",
    "Settings",
    "Terminal",
    "TerminalEnd",
    "TerminalExit",
    "TerminalFailure",
    "TerminalOutput",
    "TerminalSnapshot",
    "TerminalTruncated",
    "TerminalView",
    "TransferProgress",
    "get_sandbox",
    "import_notebook",
    "list_sandboxes",
    "load_settings",
]

# The runtime inside a sandbox imports this package too, and has none of these modules.
_HOMES = {
    "Activity": "manager.activity",
    "ActivityPage": "manager.activity",
    "DiskUsage": "manager.stats",
    "ExecResult": "client.process",
    "ExposedPort": "client.ports",
    "FileChanges": "client.files",
    "FileInfo": "client.files",
    "FileWatchEvent": "client.files",
    "FolderMode": "engines.base",
    "FolderTransfer": "client.transfer",
    "GitCheckout": "client.git",
    "GitCheckoutProgress": "client.git",
    "ImportedNotebook": "folder.importing",
    "Limits": "engines.base",
    "ListeningPort": "client.ports",
    "LogMatch": "client.process",
    "Manager": "manager.manager",
    "PortForward": "client.port_forward",
    "PortReady": "client.ports",
    "Process": "client.process",
    "ProcessExit": "client.process",
    "ProcessLogs": "client.process",
    "ProcessOutput": "client.process",
    "Sandbox": "client.sandbox",
    "SandboxError": "errors",
    "SandboxInfo": "manager.manager",
    "SandboxOptions": "client.options",
    "SandboxSpec": "engines.base",
    "SandboxStats": "manager.stats",
    "Session": "client.session",
    "Settings": "manager.settings",
    "Terminal": "client.terminal",
    "TerminalEnd": "client.terminal",
    "TerminalExit": "client.terminal",
    "TerminalFailure": "client.terminal",
    "TerminalOutput": "client.terminal",
    "TerminalSnapshot": "client.terminal",
    "TerminalTruncated": "client.terminal",
    "TerminalView": "client.terminal",
    "TransferProgress": "client.transfer",
    "get_sandbox": "client.sandbox",
    "import_notebook": "folder.importing",
    "list_sandboxes": "client.sandbox",
    "load_settings": "manager.settings",
}


def __getattr__(name: str) -> object:
    from importlib import import_module  # noqa: PLC0415  not needed inside a sandbox

    if name in _HOMES:
        value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in ("errors", "sync"):
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "errors", "sync"})
