"""What a sandbox uses, counted on the host."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sandbox_kernel.engines.base import Limits, SandboxSpec, StateLayout
from sandbox_kernel.engines.usage import usage_of_container, usage_of_tree
from sandbox_kernel.manager.doorbell import call_once
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from sandbox_kernel.manager.stats import disk_usage
from sandbox_kernel.wire.operations import ProcessRequest, StartProcessRequest


@pytest.fixture
def isolated(data_dir):
    made = Manager(Settings(data_dir=data_dir, engine="bubblewrap"))
    yield made
    for info in made.list():
        made.destroy(info.sandbox_id)
    made.close()


def test_one_that_does_not_exist_has_none(manager, data_dir):
    assert manager.stats("a") is None
    assert not data_dir.exists()


def test_one_that_is_stopped_has_no_use_and_is_not_started(manager):
    manager.ensure("a")
    manager.stop("a")

    stats = manager.stats("a")

    assert (stats.state, stats.processes, stats.memory_bytes, stats.started_at) == (
        "stopped",
        None,
        None,
        None,
    )
    assert stats.end_reason is None


def test_processes_memory_and_time_of_a_program_are_seen(isolated):
    """A program that holds 64 MiB, has a child, and worked: all of it, and it is gone afterwards."""
    running = isolated.ensure("a", SandboxSpec(limits=Limits(processes=200)))
    before = isolated.stats("a")
    program = (
        "import subprocess, time; held = bytearray(b'x' * (64 << 20));"
        "end = time.process_time() + .3\n"
        "while time.process_time() < end: pass\n"
        "child = subprocess.Popen(['sleep', '60']); print(flush=True); time.sleep(60)"
    )
    started = call_once(
        running.endpoint,
        "process.start",
        StartProcessRequest(argv=[running.instance.data["python"], "-c", program]),
        timeout=10,
    )
    named = ProcessRequest(process_id=started.process_id)
    while not call_once(running.endpoint, "process.get", named, timeout=10).output_bytes:
        pass

    stats = isolated.stats("a")

    assert stats.state == "running"
    assert stats.processes == before.processes + 2
    assert stats.memory_bytes - before.memory_bytes > 60 << 20
    assert stats.cpu_seconds - before.cpu_seconds > 0.25
    assert stats.busy
    assert stats.limits["processes"] == 200
    assert stats.network == "off"
    assert stats.memory_counted in {"cgroup", "processes"}


def test_disk_use_is_counted_when_asked_for_and_links_are_not_followed(manager):
    running = manager.ensure("a")
    layout = running.layout
    layout.workspace.mkdir(exist_ok=True)
    (layout.workspace / "file").write_bytes(b"x" * (1 << 20))
    (layout.workspace / "link").symlink_to(sys.prefix)

    assert manager.stats("a").disk is None
    disk = manager.stats("a", disk=True).disk
    assert 1 << 20 <= disk.workspace_bytes < 2 << 20
    assert disk.total_bytes >= disk.workspace_bytes
    assert disk.is_complete


def test_a_tree_of_more_files_than_are_looked_at_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("sandbox_kernel.manager.stats._MOST_ENTRIES", 10)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for number in range(20):
        (workspace / str(number)).touch()

    assert not disk_usage(StateLayout(tmp_path)).is_complete


def test_a_tree_that_is_gone_has_no_use():
    child = subprocess.Popen(["true"])
    child.wait()

    assert usage_of_tree(child.pid, []) is None


def test_a_group_of_either_version_is_counted_without_idle_pages(tmp_path):
    for version, (current, key) in enumerate(
        (("memory.usage_in_bytes", "total_inactive_file"), ("memory.current", "inactive_file"))
    ):
        folder = tmp_path / str(version)
        folder.mkdir()
        (folder / current).write_text("1000000\n")
        (folder / "memory.stat").write_text(f"anon 5\n{key} 400000\n")

        usage = usage_of_tree(os.getpid(), [str(folder)])
        assert (usage.memory_bytes, usage.counted) == (600_000, "cgroup")


def test_what_the_docker_engine_says_is_read_whatever_its_groups_are():
    told = {
        "cpu_stats": {"cpu_usage": {"total_usage": 2_500_000_000}},
        "memory_stats": {"usage": 900, "stats": {"inactive_file": 200}},
        "pids_stats": {"current": 7},
    }

    usage = usage_of_container(told)
    assert (usage.cpu_seconds, usage.memory_bytes, usage.processes) == (2.5, 700, 7)
    assert usage_of_container({}).memory_bytes is None
