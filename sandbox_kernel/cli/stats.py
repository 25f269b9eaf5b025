"""info and stats: what is known of sandboxes, and what they use; starts none."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from contextlib import closing
from dataclasses import asdict
from typing import Any

from sandbox_kernel.cli.exit_codes import OK
from sandbox_kernel.cli.naming import existing
from sandbox_kernel.cli.report import (
    duration_text,
    print_json,
    print_json_line,
    print_table,
    printable,
    size_text,
    time_text,
    warn,
)
from sandbox_kernel.cli.sandboxes import facts
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.stats import SandboxStats

__all__ = ["info", "stats"]

_CLEAR = "\x1b[H\x1b[2J"
_HEAD = (
    "SANDBOX",
    "STATE",
    "CPU",
    "MEMORY",
    "PROCESSES",
    "KERNELS",
    "TERMINALS",
    "IDLE",
    "SLEEPS IN",
)


def info(arguments: Namespace) -> int:
    """Print what is known of one sandbox."""
    with closing(Manager()) as manager:
        found = facts(existing(manager, arguments.sandbox))
    if arguments.json:
        print_json(found)
        return OK
    for name, value in found.items():
        text = time_text(value) if name.endswith("_at") else _text(value)
        print(f"{name.replace('_', ' ') + ':':<17}{printable(text)}")
    return OK


def _text(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case dict():
            return ", ".join(f"{name} {what}" for name, what in value.items()) or "-"
        case list():
            return " ".join(map(str, value)) or "-"
        case _:
            return str(value)


def stats(arguments: Namespace) -> int:
    """Print what sandboxes use, once or again and again."""
    with closing(Manager()) as manager:
        names = [existing(manager, text).sandbox_id for text in arguments.sandboxes]
        before: dict[str, SandboxStats] = {}
        while True:
            found = _taken(manager, names, disk=arguments.disk)
            if arguments.json and arguments.watch:
                for each in found:
                    print_json_line(_facts(each))
            elif arguments.json:
                print_json([_facts(each) for each in found])
            else:
                _print(found, before, arguments)
            if not arguments.watch:
                return OK
            sys.stdout.flush()
            before = {each.sandbox_id: each for each in found}
            time.sleep(arguments.interval)


def _taken(manager: Manager, names: list[str], *, disk: bool) -> list[SandboxStats]:
    """Ask for each; one whose engine does not answer keeps no other from being shown."""
    found = []
    for name in names or [each.sandbox_id for each in manager.list()]:
        try:
            each = manager.stats(name, disk=disk)
        except SandboxError as error:
            warn(f"{name}: {error.message}")
            continue
        if each is not None:  # it was destroyed meanwhile
            found.append(each)
    return found


def _print(
    found: list[SandboxStats], before: dict[str, SandboxStats], arguments: Namespace
) -> None:
    if arguments.watch and sys.stdout.isatty():
        print(_CLEAR, end="")
    head = [*_HEAD, "DISK"] if arguments.disk else _HEAD
    if found:
        print_table(head, [_row(each, before.get(each.sandbox_id), arguments) for each in found])
    else:
        print("There are no sandboxes.")


def _row(each: SandboxStats, before: SandboxStats | None, arguments: Namespace) -> list[str]:
    state = each.state if each.end_reason is None else f"{each.state} ({each.end_reason})"
    row = [
        each.sandbox_id,
        state,
        _cpu(each, before),
        _memory(each),
        _number(each.processes),
        _number(each.kernels),
        _number(each.terminals),
        duration_text(each.idle_for),
        ", ".join(each.busy) if each.busy else duration_text(each.sleeps_in),
    ]
    if arguments.disk:
        size = "-" if each.disk is None else size_text(each.disk.total_bytes)
        more = each.disk is not None and not each.disk.is_complete
        row.append(f"over {size}" if more else size)
    return row


def _cpu(each: SandboxStats, before: SandboxStats | None) -> str:
    """Return the part of a processor in use since the last look, else the seconds since the start.

    A processor that is fully used is 100 %.
    """
    if each.cpu_seconds is None:
        return "-"
    is_same = before is not None and before.started_at == each.started_at
    if before is None or not is_same or before.cpu_seconds is None:
        return f"{each.cpu_seconds:.1f} s"
    passed = max(each.taken_at - before.taken_at, 0.001)
    return f"{max(0.0, each.cpu_seconds - before.cpu_seconds) / passed:.0%}"


def _memory(each: SandboxStats) -> str:
    if each.memory_bytes is None:
        return "-"
    limit = each.limits.get("memory_bytes")
    used = size_text(each.memory_bytes)
    return used if limit is None else f"{used} of {size_text(int(limit))}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _facts(each: SandboxStats) -> dict[str, Any]:
    found = asdict(each)
    if each.disk is not None:
        found["disk"]["total_bytes"] = each.disk.total_bytes
    return found
