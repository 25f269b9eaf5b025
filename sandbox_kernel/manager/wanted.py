"""What a sandbox shall be: the settings, what was chosen for it before, what is asked for now.

Settings hold for every sandbox at its next start.  What somebody chose for one sandbox stays with
it until something else is chosen, whatever the settings say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from sandbox_kernel.engines.base import Limits, SandboxSpec

__all__ = ["Wanted", "differences", "fits", "live_rules_differ", "want", "with_live_rules"]

_LIVE = frozenset({"sleep_after", "keep_alive", "output_policy"})
"""What can change while the sandbox runs."""

_NOT_OF_WHAT_RUNS = _LIVE | {"accept_weaker_limits", "folder_required"}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A specification, with the names of the fields that were chosen for this sandbox."""

    spec: SandboxSpec
    chosen: frozenset[str] = frozenset()


def want(
    default: SandboxSpec,
    before: Wanted | None,
    spec: SandboxSpec | None,
    changes: Mapping[str, Any],
) -> Wanted:
    """Return what a sandbox shall be at its next start.

    Parameters
    ----------
    default : SandboxSpec
        What the settings say.
    before : Wanted, optional
        What it was at its last start.
    spec : SandboxSpec, optional
        What is asked for; each field that differs from the settings counts as chosen.
    changes : mapping
        Fields that are chosen, even if they equal the settings.
    """
    now = dict(changes)
    if spec is not None:
        for each in fields(SandboxSpec):
            value = getattr(spec, each.name)
            if value != getattr(default, each.name):
                now.setdefault(each.name, value)
    kept = set(before.chosen) if before is not None else set()
    if "notebook_folder" in now:
        # Whether it must be shown was said of another folder.
        kept.discard("folder_required")
    old = {name: getattr(before.spec, name) for name in kept} if before is not None else {}
    return Wanted(spec=replace(default, **{**old, **now}), chosen=frozenset(kept | now.keys()))


def live_rules_differ(one: SandboxSpec, other: SandboxSpec) -> bool:
    """Whether rules of idle sleep and of outputs are not those of the running sandbox."""
    return any(getattr(one, name) != getattr(other, name) for name in _LIVE)


def with_live_rules(running: Wanted, asked: Wanted) -> Wanted:
    """Return what runs, with the rules of idle sleep and of outputs that are asked for."""
    rules = {name: getattr(asked.spec, name) for name in _LIVE}
    return Wanted(
        spec=replace(running.spec, **rules),
        chosen=running.chosen | (asked.chosen & _LIVE),
    )


def fits(runs_with: SandboxSpec, asked: SandboxSpec) -> bool:
    """Whether what runs is what is asked for, once its rules of idle sleep and outputs change."""
    return replace(runs_with, **{name: getattr(asked, name) for name in _LIVE}) == asked


def differences(runs_with: SandboxSpec, asked: SandboxSpec) -> list[str]:
    """Say in sentences what a running sandbox does not give of what was asked for."""
    sentences = []
    for each in fields(SandboxSpec):
        has, wanted = getattr(runs_with, each.name), getattr(asked, each.name)
        if has == wanted or each.name in _NOT_OF_WHAT_RUNS:
            continue
        if each.name == "notebook_folder" and wanted is not None:
            shown = f"shows {has}" if has is not None else "shows no notebook folder"
            sentences.append(
                f"The running sandbox {shown}; {wanted} is shown after its next start."
            )
        elif each.name == "engine" and wanted is None:
            continue
        elif each.name == "env":
            sentences.append("The running sandbox keeps its environment until its next start.")
        elif each.name == "limits":
            sentences += [
                _kept(
                    f"the limit {limit.name}", getattr(has, limit.name), getattr(wanted, limit.name)
                )
                for limit in fields(Limits)
                if getattr(has, limit.name) != getattr(wanted, limit.name)
            ]
        else:
            sentences.append(_kept(each.name, has, wanted))
    return sentences


def _kept(name: str, has: object, wanted: object) -> str:
    return (
        f"The running sandbox keeps {name} = {_plain(has)} until its next start"
        f" (asked for: {_plain(wanted)})."
    )


def _plain(value: object) -> str:
    if value is None:
        return "none"
    return str(value) if isinstance(value, str | Path) else repr(value)
