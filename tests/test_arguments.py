from __future__ import annotations

import contextlib
import fractions
import json
import math
import numbers
import pathlib
import signal
import sqlite3

import pytest

from sandbox_kernel import arguments
from sandbox_kernel.client.options import spec_changes
from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.engines.base import Limits, SandboxSpec
from sandbox_kernel.engines.settings import DockerSettings
from sandbox_kernel.errors import (
    InvalidCommandError,
    InvalidProcessEnvironmentError,
    InvalidSandboxIdError,
    SandboxConfigurationError,
    ValidationFailedError,
)
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings, load_settings
from tests.support.managed import plain_manager

NO_BOOLS = ["no", "False", "false", "off", "", "yes", 0, 1, None, []]
SPEC_FLAGS = [
    "network",
    "folder_required",
    "keep_packages",
    "accept_weaker_limits",
    "allow_ptrace",
    "keep_alive",
]
SETTINGS_FLAGS = ["network", "keep_packages", "accept_weaker_limits", "allow_ptrace", "keep_alive"]


@pytest.fixture
def manager(tmp_path):
    made = Manager(Settings(data_dir=tmp_path / "sandbox"))
    yield made
    made.close()


@pytest.mark.parametrize("value", NO_BOOLS)
@pytest.mark.parametrize("name", SPEC_FLAGS)
def test_no_text_switches_anything_on(manager, name, value):
    """An option that is a bool takes nothing else, by whichever way it comes; it is named."""
    with pytest.raises(SandboxConfigurationError, match=rf"{name} must be True or False"):
        get_sandbox("demo", manager=manager, **{name: value})
    with pytest.raises(SandboxConfigurationError, match=rf"{name} must be True or False"):
        SandboxSpec(**{name: value})


@pytest.mark.parametrize("value", NO_BOOLS)
@pytest.mark.parametrize("name", SETTINGS_FLAGS)
def test_settings_take_no_text_for_a_bool(name, value):
    """Neither made in Python nor as JSON."""
    with pytest.raises(SandboxConfigurationError, match=name):
        Settings(**{name: value})
    with pytest.raises(SandboxConfigurationError, match=name):
        load_settings(
            {
                "SANDBOX_CONFIG": json.dumps({"SandboxManager": {name: value}}),
                "JUPYTER_NO_CONFIG": "1",
            }
        )


async def test_configure_takes_no_text_for_a_bool(manager):
    """A handle's options stay as they were."""
    sandbox = get_sandbox("demo", manager=manager)
    with pytest.raises(SandboxConfigurationError, match="network must be True or False"):
        await sandbox.configure(network="no")

    assert sandbox._changes == {}


@pytest.mark.parametrize("name", ["normalize_id", "enable_default_session"])
def test_switches_of_a_handle_are_bools(manager, name):
    """So are those that are no options of the sandbox."""
    with pytest.raises(SandboxConfigurationError, match=f"{name} must be True or False"):
        get_sandbox("demo", manager=manager, **{name: "no"})
    with pytest.raises(SandboxConfigurationError, match="read_only"):
        DockerSettings(read_only="no")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"command_timeout": "5"}, "command_timeout must be a number of seconds, not '5'"),
        ({"command_timeout": math.nan}, "command_timeout must be a number"),
        ({"limits": {"memory_bytes": 10}}, "limits must be Limits"),
        ({"env": ["A=1"]}, "env must be a mapping"),
        ({"engine": 3}, "engine must be text"),
        ({"notebook_folder": 3}, "notebook_folder must be a path"),
    ],
)
def test_options_of_the_wrong_kind_are_named_at_once(manager, options, said):
    """Not at the first command, nor by an error of Python's own."""
    with pytest.raises(SandboxConfigurationError, match=said):
        get_sandbox("demo", manager=manager, **options)


@pytest.mark.parametrize("value", [None, 3, b"demo", pathlib.Path("demo")])
def test_an_id_is_text(value):
    """Everything else is refused as an id."""
    with pytest.raises(InvalidSandboxIdError, match="it is no text"):
        get_sandbox(value)


@pytest.mark.parametrize(
    "limits",
    [
        {"memory_bytes": "512M"},
        {"cpus": "2"},
        {"processes": 1.5},
        {"cpus": True},
        {"cpus": math.nan},
    ],
)
def test_limits_are_numbers(limits):
    """The limit is named; numbers as text are not guessed at."""
    [name] = limits
    with pytest.raises(SandboxConfigurationError, match=f"{name} must be a") as caught:
        Limits(**limits)
    assert ("512 << 20" in str(caught.value)) == (name == "memory_bytes")


def test_variables_of_a_sandbox_are_texts():
    """None would be text in programs; a number and a path are what they are written as."""
    given = {"N": 3, "P": pathlib.PurePosixPath("/usr")}

    assert spec_changes({"env": given})["env"] == {"N": "3", "P": "/usr"}
    for env in ({"A": None}, {"A": b"x"}, {"A": True}, {3: "x"}):
        with pytest.raises(InvalidProcessEnvironmentError):
            spec_changes({"env": env})


async def test_a_name_with_white_space_is_no_variable(manager):
    """No shell could have it; refused before anything is made."""
    with pytest.raises(InvalidProcessEnvironmentError, match="white space"):
        await get_sandbox("demo", manager=manager, env={"A B": "1"}).start()


@pytest.mark.parametrize("value", [0o755, "755", "0o755", "0755"])
def test_modes_are_bits_or_octal_text(value):
    """All of these are rwxr-xr-x."""
    assert arguments.file_mode("mode", value) == 0o755


@pytest.mark.parametrize("value", [755, 644, 600, 700, 777, 640, -1, 0o10000, "9", "", 7.5, True])
def test_what_is_no_mode_is_refused(value):
    """Decimal digits that were meant as octal ones would set other bits than anybody means."""
    with pytest.raises(ValidationFailedError, match="'mode'"):
        arguments.file_mode("mode", value)


@pytest.mark.parametrize("value", [0, 0o1777, 0o1755, 0o2755, 0o4755, 511, 0o620])
def test_bits_that_somebody_means_pass(value):
    """Also those of a sticky folder."""
    assert arguments.file_mode("mode", value) == value


@pytest.mark.parametrize("value", [15, "SIGTERM", "TERM", "sigterm"])
def test_signals_have_numbers_and_names(value):
    """The names are Linux's, wherever the caller runs."""
    assert arguments.signal_number("signal", value) == 15


def test_names_of_signals_are_linux_own():
    """Compared with this system's, which is one."""
    for name in arguments._SIGNALS:
        assert arguments.signal_number("signal", name) == getattr(
            signal, f"SIG{name}", arguments._SIGNALS.index(name) + 1
        )


@pytest.mark.parametrize("value", ["SIGNONE", None, True, 1.5])
def test_what_is_no_signal_is_refused(value):
    """With what to pass."""
    with pytest.raises(ValidationFailedError, match="SIGTERM"):
        arguments.signal_number("signal", value)


def test_words_may_be_paths():
    """Paths are words of a command; everything else is named."""
    assert arguments.words(["cat", pathlib.PurePosixPath("/etc/passwd")]) == ["cat", "/etc/passwd"]
    for command in (None, 3, ["ls", 3], ["ls", None], {"a": 1}, b"ls", "ls"):
        with pytest.raises(InvalidCommandError):
            arguments.words(command)


def test_a_text_is_one_pattern():
    """Not as many as it has letters."""
    assert arguments.patterns("include", "*.py") == ["*.py"]
    assert arguments.patterns("include", ("*.py", "*.md")) == ["*.py", "*.md"]
    for value in ([3], 3, None):
        with pytest.raises(ValidationFailedError, match="'include'"):
            arguments.patterns("include", value)


def test_numbers_of_other_libraries_become_plain_ones():
    """A notebook's numbers often come from numpy, which registers its own as these do."""

    class Whole:
        def __int__(self):
            return 5

        def __float__(self):
            return 5.0

    numbers.Integral.register(Whole)
    half = fractions.Fraction(1, 2)

    assert type(arguments.count("n", Whole())) is int
    assert arguments.number("n", half) == 0.5
    assert type(Limits(cpus=half).cpus) is float
    with pytest.raises(ValidationFailedError):
        arguments.count("n", half)


def test_a_stored_text_for_a_bool_opens_nothing(tmp_path):
    """What an earlier release took is read as damage: the default holds, and the rest is listed."""
    with plain_manager(tmp_path / "sandbox") as manager:
        manager.ensure("demo")
        manager.stop("demo")
        with contextlib.closing(
            sqlite3.connect(tmp_path / "sandbox" / "registry.sqlite3")
        ) as stored:
            [row] = stored.execute("SELECT spec FROM sandbox").fetchall()
            changed = json.dumps({**json.loads(row[0]), "network": "no"})
            stored.execute("UPDATE sandbox SET spec = ?", (changed,))
            stored.commit()

        assert [info.spec.network for info in manager.list()] == [False]
