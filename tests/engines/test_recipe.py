"""bubblewrap's options as text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sandbox_kernel.engines.recipe import (
    Descriptors,
    Mount,
    MountKind,
    Plan,
    command,
    options,
    runtime_config,
)

PLAN = Plan(
    hostname="demo",
    network=False,
    system={"/bin": "usr/bin", "/lib64": None},
    mounts=(Mount(kind=MountKind.WRITE, source="/state/workspace", dest="/workspace"),),
    links={"/etc/mtab": "/proc/self/mounts"},
    files={"/etc/passwd": b"user"},
    masked=("/proc/kpagecount",),
    tmp_bytes=1000,
    code="/cache/code",
)
DESCRIPTORS = Descriptors(seccomp=10, info=11, sync=12, files={"/etc/passwd": 13})


def told(plan: Plan = PLAN) -> list[str]:
    parts = options(plan, DESCRIPTORS)
    return parts.first + parts.last


def has(words: list[str], *sequence: str) -> bool:
    return any(tuple(words[at : at + len(sequence)]) == sequence for at in range(len(words)))


@pytest.mark.parametrize(
    "sequence",
    [
        ("--unshare-all",),
        ("--unshare-user", "--disable-userns"),
        ("--uid", "1000", "--gid", "1000"),
        ("--cap-drop", "ALL"),
        ("--new-session",),
        ("--as-pid-1",),
        ("--seccomp", "10"),
        ("--info-fd", "11"),
        ("--clearenv",),
        ("--hostname", "demo"),
        ("--ro-bind", "/usr", "/usr"),
        ("--symlink", "usr/bin", "/bin"),
        ("--ro-bind", "/lib64", "/lib64"),
        ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),
        ("--ro-bind", "/dev/null", "/proc/kpagecount"),
        ("--size", "1000", "--tmpfs", "/tmp"),
        ("--size", "1000", "--tmpfs", "/dev/shm"),
        ("--bind", "/state/workspace", "/workspace"),
        ("--symlink", "/proc/self/mounts", "/etc/mtab"),
        ("--file", "13", "/etc/passwd"),
        ("--ro-bind", "/cache/code", "/opt/sandbox"),
    ],
)
def test_every_sandbox_is_told(sequence: tuple[str, ...]) -> None:
    """What isolation and contents rest on, whatever was asked for."""
    assert has(told(), *sequence)


@pytest.mark.parametrize("word", ["--share-net", "--die-with-parent", "--cap-add", "/sys"])
def test_no_sandbox_is_told(word: str) -> None:
    """Nothing that would open it, or tie it to its starter."""
    assert word not in told()


def test_the_network_is_shared_on_request_only() -> None:
    """And is then the only namespace that is."""
    assert has(told(replace(PLAN, network=True)), "--unshare-all", "--share-net")


def test_the_root_is_closed_last() -> None:
    """After every mount and file, or those could not be made."""
    assert told()[-2:] == ["--remount-ro", "/"]


def test_the_file_that_tells_of_success_comes_after_all_mounts() -> None:
    """Its being read stands for everything before it."""
    words = told(replace(PLAN, memory_events="/sys/fs/cgroup/x/memory.events"))

    after = words[words.index("12") :]
    assert not {"--bind", "--ro-bind", "--tmpfs", "--overlay"} & set(after)


def test_the_code_is_withheld_until_the_groups_are_entered() -> None:
    """A sandbox whose starter died before that has nothing to run."""
    parts = options(PLAN, DESCRIPTORS)

    assert not [each for each in parts.first if "/opt/sandbox" in each]
    assert "/opt/sandbox" in parts.last


def test_isolation_is_asked_for_before_any_mount() -> None:
    """Options cut off at any place leave less to see, never more."""
    words = told()
    first_mount = words.index("--ro-bind")

    for flag in ("--unshare-all", "--disable-userns", "--cap-drop", "--seccomp", "--clearenv"):
        assert words.index(flag) < first_mount


def test_a_folder_to_read_is_laid_over_an_empty_one() -> None:
    """Nothing of it is the host's own to a program inside but what it says; the folder is on top."""
    mount = Mount(kind=MountKind.READ_OVERLAY, source="/nb", dest="/shown", upper="/s/empty")
    words = told(replace(PLAN, mounts=(mount,)))

    at = words.index("--ro-overlay")
    assert words[at - 4 : at + 2] == [
        *("--overlay-src", "/s/empty", "--overlay-src", "/nb"),
        *("--ro-overlay", "/shown"),
    ]


def test_what_lies_in_another_path_is_mounted_on_top() -> None:
    """An environment in the notebook's folder, and the folder below /tmp."""
    plan = replace(
        PLAN,
        mounts=(
            Mount(kind=MountKind.READ, source="/tmp/nb/.venv", dest="/tmp/nb/.venv"),
            Mount(
                kind=MountKind.OVERLAY,
                source="/tmp/nb",
                dest="/tmp/nb",
                upper="/s/upper",
                work="/s/work",
            ),
        ),
    )
    words = told(plan)

    tmp = words.index("/tmp")
    folder = words.index("--overlay")
    environment = words.index("/tmp/nb/.venv")
    assert tmp < folder < environment
    assert has(words, "--overlay-src", "/tmp/nb", "--overlay", "/s/upper", "/s/work", "/tmp/nb")


def test_a_layer_in_memory() -> None:
    """Where the disk takes none."""
    plan = replace(
        PLAN, mounts=(Mount(kind=MountKind.MEMORY_OVERLAY, source="/venv", dest="/venv"),)
    )

    assert has(told(plan), "--overlay-src", "/venv", "--tmp-overlay", "/venv")


def test_the_command_names_nothing_secret() -> None:
    """Interpreter, code and a number: the rest comes through that descriptor."""
    assert command("/venv/bin/python", 7) == [
        *("/venv/bin/python", "-I", "-S", "/opt/sandbox/sandbox_runtime/__main__.py"),
        *("--config-fd", "7"),
    ]


def test_values_reach_the_runtime_as_they_are() -> None:
    """Spaces, newlines, quotes, and bytes that are no text."""
    values = ["a b", " lead", "x\ny", "$HOME", '"q"', "é漢😀", "", "a=b", "\udcff", "\\n"]

    assert json.loads(runtime_config({"env": values})) == {"env": values}
