"""kernelspec install: the sandbox kernel in Jupyter's list of kernels."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager

from sandbox_kernel.cli.exit_codes import OK
from sandbox_kernel.cli.naming import checked_id
from sandbox_kernel.cli.report import print_json
from sandbox_kernel.errors import SandboxConfigurationError, StorageError

__all__ = ["install"]

_SOURCE = Path(__file__).parent.parent / "kernelspec"
_PYTHON = "python"
_PYTHONS = {"python", "python3", f"python{sys.version_info.major}.{sys.version_info.minor}"}
_RELAY = "sandbox_kernel.kernel.launch"


@dataclass(frozen=True, kw_only=True)
class _Wrapped:
    """A kernel of Jupyter's that is to run in a sandbox; without `argv` it is our own."""

    language: str = _PYTHON
    display_name: str = ""
    argv: list[str] = field(default_factory=list)
    debugger: bool = True
    pictures: Path = _SOURCE


def install(arguments: Namespace) -> int:
    """Install the kernelspec and print where."""
    kernels = KernelSpecManager()
    wrapped = _choose(kernels, arguments.language, arguments.kernel)
    name = arguments.name or f"sandbox-{wrapped.language.lower()}"
    # As ipykernel has it: a kernel of another name should be told apart in the launcher as well.
    display_name = arguments.display_name or arguments.name or wrapped.display_name
    prefix = arguments.prefix or (None if arguments.user else sys.prefix)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, "kernelspec")
        draft.mkdir()
        for picture in wrapped.pictures.glob("logo-*"):
            shutil.copy(picture, draft)
        spec = _spec(wrapped, display_name, arguments.id)
        (draft / "kernel.json").write_text(json.dumps(spec, indent=2) + "\n", encoding="utf-8")
        try:
            destination = kernels.install_kernel_spec(
                str(draft), name, user=arguments.user, prefix=prefix
            )
        except ValueError as error:
            raise SandboxConfigurationError(f"{error}") from error
        except OSError as error:
            raise StorageError(
                str(error.filename or prefix),
                "write",
                error.strerror or str(error),
                "Install it for yourself with --user, or name another place with --prefix.",
            ) from error
    if arguments.json:
        print_json({"name": name, "path": destination})
    else:
        print(f"Installed kernelspec {name} in {destination}")
    return OK


def _choose(kernels: KernelSpecManager, language: str | None, kernel: str | None) -> _Wrapped:
    """Return the kernel that is meant; our own for Python, unless another is named."""
    if kernel is None and (language or _PYTHON).lower() == _PYTHON:
        return _Wrapped()
    fitting = {
        name: found
        for name, found in kernels.get_all_specs().items()
        if _RELAY not in found["spec"]["argv"]
        and (kernel is None or name == kernel)
        and (language is None or found["spec"].get("language", "").lower() == language.lower())
    }
    if len(fitting) > 1:
        raise SandboxConfigurationError(
            f"Jupyter has several kernels for {language!r}: {', '.join(sorted(fitting))}.",
            hint="Say which one with --kernel NAME.",
        )
    if not fitting:
        what = f"kernel {kernel!r}" if kernel else "kernel"
        raise SandboxConfigurationError(
            f"Jupyter has no {what}{f' for {language!r}' if language else ''} to run in a sandbox.",
            hint="'jupyter kernelspec list' shows what it has; install the kernel you mean.",
        )
    [found] = fitting.values()
    return _wrap(found["spec"], Path(found["resource_dir"]))


def _wrap(spec: dict[str, Any], folder: Path) -> _Wrapped:
    argv = [
        # The relay's own connection file is another one; Jupyter would fill in that.
        word.replace("{connection_file}", "@connection_file@").replace(
            "{resource_dir}", str(folder)
        )
        for word in spec["argv"]
    ]
    if argv[0] in _PYTHONS:
        argv[0] = sys.executable
    if spec.get("env"):
        # The relay's environment does not reach the sandbox.
        argv = ["env", *(f"{name}={value}" for name, value in spec["env"].items()), *argv]
    language = spec.get("language") or folder.name
    return _Wrapped(
        language=language,
        display_name=f"{spec.get('display_name') or language} (sandbox)",
        argv=argv,
        debugger=(spec.get("metadata") or {}).get("debugger") is True,
        pictures=folder,
    )


def _spec(wrapped: _Wrapped, display_name: str, sandbox_id: str | None) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads((_SOURCE / "kernel.json").read_text(encoding="utf-8"))
    # Jupyter may run in another environment, where "python" would be one without the project.
    spec["argv"][0] = sys.executable
    if wrapped.argv:
        spec["argv"] += ["--", *wrapped.argv]
        spec["metadata"] = {**spec["metadata"], "debugger": wrapped.debugger}
    spec["language"] = wrapped.language
    spec["display_name"] = display_name or spec["display_name"]
    if sandbox_id:
        spec["env"] = {**spec.get("env", {}), "SANDBOX_ID": checked_id(sandbox_id)}
    return spec
