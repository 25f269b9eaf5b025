"""The bubblewrap engine: isolation without a daemon, root or an account.

`recipe` says what bubblewrap is told, `start` starts it, `incarnation` ends it again.

Whether a sandbox lives is asked at every kernel launch, and mostly that is all: what only a start
or an end needs is imported there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sandbox_kernel.engines import incarnation
from sandbox_kernel.engines.base import Instance, Launch, Probe, StateLayout
from sandbox_kernel.engines.settings import BubblewrapSettings
from sandbox_kernel.errors import EngineUnavailableError

if TYPE_CHECKING:
    from sandbox_kernel.engines.usage import Usage

__all__ = ["BubblewrapEngine", "BubblewrapSettings"]

_NAME = "bubblewrap"


class BubblewrapEngine:
    """Starts runtimes in bubblewrap; see `sandbox_kernel.engines.base.Engine`.

    Parameters
    ----------
    settings : BubblewrapSettings, optional
        What the user configured.
    **options
        Fields of `BubblewrapSettings`, over `settings`.
    """

    name = _NAME
    names_later = True

    def __init__(
        self,
        settings: BubblewrapSettings | None = None,
        **options: Any,  # fields of the settings
    ) -> None:
        self.settings = replace(settings or BubblewrapSettings(), **options)

    def probe(self) -> Probe:
        """Find out by trying whether this engine works here."""
        from sandbox_kernel.engines import binary  # noqa: PLC0415
        from sandbox_kernel.engines.trial import not_found, try_bwrap  # noqa: PLC0415

        found = binary.find(self.settings.executable)
        facts = {"bwrap": found.path or "", "found": found.source}
        if found.passed_over:
            facts["passed over"] = "; ".join(found.passed_over)
        if found.path is None:
            problem = not_found(found)
            return Probe(
                engine=_NAME, works=False, cause=problem.cause, mend=problem.mend, facts=facts
            )
        problem_or_none = try_bwrap(found.path)
        if problem_or_none is not None:
            return Probe(
                engine=_NAME,
                works=False,
                cause=problem_or_none.cause,
                mend=problem_or_none.mend,
                facts=facts | {"code": problem_or_none.code},
            )
        return Probe(engine=_NAME, works=True, facts=facts)

    def start(self, launch: Launch) -> Instance:
        """Start the runtime; returns once all mounts are made and its socket takes connections.

        The runtime itself may still be on its way: a client's first HELLO waits for it, and ends
        at once with a closed connection if the runtime fails.

        Raises
        ------
        EngineUnavailableError
            bubblewrap is missing, or the machine does not let it work.
        EngineStartError
            bubblewrap failed for another reason; holds its last words.
        LimitNotEnforceableError
            A limit cannot be enforced and `accept_weaker_limits` is off.
        NotebookFolderRefusedError
            The notebook's folder may not be shown and `folder_required` is on, or does not exist.
        StorageError, StorageFullError
            The sandbox's own files cannot be written.
        """
        from sandbox_kernel.engines import binary  # noqa: PLC0415
        from sandbox_kernel.engines.start import Start  # noqa: PLC0415
        from sandbox_kernel.engines.trial import not_found  # noqa: PLC0415

        found = binary.find(self.settings.executable)
        if found.path is None:
            problem = not_found(found)
            raise EngineUnavailableError(_NAME, problem.cause, problem.mend)
        return Start(launch, self.settings, found.path).run()

    def is_alive(self, instance: Instance, layout: StateLayout) -> bool:
        """Whether the runtime of this instance still runs.

        Decided by the lock it holds, which ends with it and cannot be inherited by another pid.
        """
        del instance
        return incarnation.is_locked(layout)

    def usage(self, instance: Instance) -> Usage | None:
        """Return what the sandbox uses; None if it has gone."""
        from sandbox_kernel.engines.usage import usage_of_tree  # noqa: PLC0415

        pid = int(instance.data["pid"])
        if incarnation.start_time(pid) != instance.data["start_time"]:
            return None
        return usage_of_tree(pid, [str(each) for each in instance.data.get("cgroups", [])])

    def stop(self, instance: Instance | None, layout: StateLayout, *, grace: float) -> None:
        """End every process of the sandbox and remove what the engine made for it.

        The runtime is pid 1 of the sandbox: when it is gone, the kernel has ended everything else.
        Workspace, home, and the layers that persist are left alone.  A second call is fine.
        """
        from sandbox_kernel.engines import cgroups  # noqa: PLC0415
        from sandbox_kernel.engines.disk import empty  # noqa: PLC0415

        data = (
            instance.data
            if instance is not None
            else incarnation.read_json(incarnation.record_file(layout))
        )
        pid = incarnation.living_pid(data, layout)
        if pid is not None:
            incarnation.end(pid, grace)
        folders = [str(each) for each in data.get("cgroups", [])]
        cgroups.kill(folders)
        cgroups.remove(folders)
        incarnation.remove_files(layout)
        empty(layout.spool)
        if not data.get("keep_packages", True):  # without a record, nothing is thrown away
            empty(layout.packages)
