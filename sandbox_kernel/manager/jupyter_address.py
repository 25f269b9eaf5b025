"""Where this user's Jupyter server is, as it writes down itself; nothing is asked or started."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox_kernel.manager.settings import data_folder

__all__ = ["JupyterAddress", "jupyter_address"]


@dataclass(frozen=True, kw_only=True)
class JupyterAddress:
    """A server's address."""

    url: str
    """``http://HOST:PORT/BASE/``, as seen from this machine."""
    base_url: str
    """The path of it, which is the same for browsers elsewhere."""


def jupyter_address(environ: Mapping[str, str] = os.environ) -> JupyterAddress | None:
    """Return the address of the server that runs this kernel; else of the only one that runs.

    None if there is none, or more than one of which none is ours.
    """
    folder = Path(environ.get("JUPYTER_RUNTIME_DIR") or data_folder(environ) / "runtime")
    found: dict[str, JupyterAddress] = {}
    for file in folder.glob("jpserver-*.json"):
        pid = file.stem.rpartition("-")[2]
        if pid.isdigit() and _is_alive(int(pid)):
            address = _read(file)
            if address is not None:
                found[pid] = address
    ours = found.get(environ.get("JPY_PARENT_PID", ""))
    if ours is not None or len(found) != 1:
        return ours
    return next(iter(found.values()))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _read(file: Path) -> JupyterAddress | None:
    try:
        written = json.loads(file.read_text(encoding="utf-8"))
        url, base_url = written["url"], written["base_url"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    if (
        not isinstance(url, str)
        or not url.startswith(("http://", "https://"))
        or not isinstance(base_url, str)
    ):
        return None  # such as a server at a unix socket
    return JupyterAddress(url=url, base_url=base_url)
