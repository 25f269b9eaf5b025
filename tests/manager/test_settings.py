from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from jupyter_core import paths

from sandbox_kernel import config
from sandbox_kernel.engines.base import FolderMode
from sandbox_kernel.errors import SandboxConfigurationError
from sandbox_kernel.manager.settings import (
    GROUPS,
    Settings,
    config_folders,
    data_folder,
    load_settings,
    trait_names,
)
from sandbox_kernel.wall.modes import Mode


@pytest.fixture
def environ(tmp_path):
    """An environment with a configuration folder of its own."""
    (tmp_path / "config").mkdir()
    (tmp_path / "data" / "sandbox").mkdir(parents=True)
    return {
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_DATA_DIR": str(tmp_path / "data"),
    }


def write(environ, name: str, content: str) -> Path:
    path = Path(environ["JUPYTER_CONFIG_DIR"], name)
    path.write_text(content)
    return path


def test_without_any_source_the_defaults_hold(environ, tmp_path):
    """An empty configuration gives the defaults, with the data folder of Jupyter."""
    assert load_settings(environ) == Settings(data_dir=tmp_path / "data" / "sandbox")


def test_json_and_python_files_are_read_and_python_wins(environ):
    """Both forms of the file count, the Python one later."""
    value = {"SandboxManager": {"network": True, "cpus": 2}, "Unknown": {"a": 1}}
    write(environ, "jupyter_sandbox_config.json", json.dumps(value))
    write(
        environ,
        "jupyter_sandbox_config.py",
        "print('noise')\n"
        "c = get_config()\n"
        "c.SandboxManager.cpus = 1.5\n"
        "c.SandboxManager.notebook_folder = 'read'\n"
        "c.BubblewrapEngine.executable = '/opt/bwrap'\n"
        "c.BubblewrapEngine.extra_paths = ['/opt/data']\n"
        "c.SandboxKernelApp.lease = 60\n"
        "c.SomethingElse.x = 1\n",
    )

    found = load_settings(environ)

    assert found.network is True
    assert found.cpus == 1.5
    assert found.notebook_folder is FolderMode.READ
    assert found.bubblewrap.executable == "/opt/bwrap"
    assert found.bubblewrap.extra_paths == ("/opt/data",)
    assert found.kernel.lease == 60.0


def test_a_python_file_is_evaluated_once_until_it_changes(environ, tmp_path):
    """The outcome is kept, and forgotten when the file is another."""
    counter = tmp_path / "counter"
    text = f"open({str(counter)!r}, 'a').write('x')\nget_config().SandboxManager.network = "
    path = write(environ, "jupyter_sandbox_config.py", text + "True\n")

    assert [load_settings(environ).network for _ in range(3)] == [True] * 3
    assert counter.read_text() == "x"
    path.write_text(text + "False\n")
    assert load_settings(environ).network is False
    assert counter.read_text() == "xx"


def test_a_python_file_that_fails_is_named(environ):
    """The error names the file and what Python said."""
    path = write(environ, "jupyter_sandbox_config.py", "1/0\n")

    with pytest.raises(SandboxConfigurationError, match="ZeroDivisionError") as caught:
        load_settings(environ)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("group", "key", "value"),
    [
        ("SandboxManager", "netwrok", True),
        ("SandboxManager", "network", "yes"),
        ("SandboxManager", "cpus", "2"),
        ("SandboxManager", "cpus", True),
        ("SandboxManager", "notebook_folder", "rw"),
        ("SandboxManager", "env", {"A": 1}),
        ("SandboxManager", "data_dir", "/tmp"),
        ("SandboxManager", "kernel", {}),
        ("SandboxKernelApp", "lease", "1h"),
        ("BubblewrapEngine", "executable", 3),
        ("BubblewrapEngine", "extra_paths", "/opt"),
        ("BubblewrapEngine", "extra_paths", [1]),
    ],
)
def test_a_wrong_setting_is_named(environ, group, key, value):
    """A misspelt name or a value of the wrong type is an error that names the setting."""
    write(environ, "jupyter_sandbox_config.json", json.dumps({group: {key: value}}))

    with pytest.raises(SandboxConfigurationError, match=key):
        load_settings(environ)


def test_the_environment_has_the_last_word(environ):
    """SANDBOX_CONFIG wins over files, SANDBOX_ENGINE and SANDBOX_ID over it."""
    write(environ, "jupyter_sandbox_config.json", '{"SandboxManager": {"engine": "one"}}')
    environ["SANDBOX_CONFIG"] = json.dumps(
        {"SandboxManager": {"engine": "two", "sleep_after": None}}
    )

    assert load_settings(environ).engine == "two"
    assert load_settings(environ).sleep_after is None
    environ["SANDBOX_ENGINE"] = "three"
    environ["SANDBOX_ID"] = "shared"
    assert load_settings(environ).engine == "three"
    assert load_settings(environ).kernel.sandbox_id == "shared"


def test_the_folders_are_those_of_jupyter(monkeypatch):
    """We read the folders that ``jupyter --paths`` names, the other way round."""
    for name in [each for each in os.environ if each.startswith("JUPYTER_")]:
        monkeypatch.delenv(name)
    for changes in (
        {},
        {"JUPYTER_CONFIG_DIR": "/somewhere"},
        {"JUPYTER_CONFIG_PATH": "/one:/two"},
        {"JUPYTER_PREFER_ENV_PATH": "0"},
        {"JUPYTER_PREFER_ENV_PATH": "1"},
    ):
        with monkeypatch.context() as patched:
            for name, value in changes.items():
                patched.setenv(name, value)

            ours = [str(each) for each in config_folders()]

            assert ours == list(reversed(paths.jupyter_config_path()))


def test_the_data_folder_is_that_of_jupyter(monkeypatch):
    """The registry lies where Jupyter keeps its data."""
    monkeypatch.delenv("JUPYTER_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/xdg")
    assert str(data_folder()) == paths.jupyter_data_dir() == "/xdg/jupyter"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert str(data_folder()) == paths.jupyter_data_dir()
    monkeypatch.setenv("JUPYTER_DATA_DIR", "/data")
    assert str(data_folder()) == paths.jupyter_data_dir() == "/data"


@pytest.mark.parametrize("cls", config.CONFIGURABLES)
def test_traitlets_classes_equal_the_plain_ones(cls):
    """Name, default and accepted values of each trait are those of the plain setting."""
    _, group = GROUPS[cls.__name__]
    defaults = group()
    traits = cls.class_traits(config=True)
    annotations = typing.get_type_hints(group)

    assert sorted(traits) == sorted(trait_names(group))
    for name, trait in traits.items():
        default = trait.default()
        plain_default = getattr(defaults, name)
        assert (tuple(default) if isinstance(default, list) else default) == plain_default, name
        assert trait.help, name
        assert trait.allow_none == (type(None) in typing.get_args(annotations[name])), name


def test_every_setting_reaches_a_specification():
    """What a user configures for sandboxes is in the specification of a new one."""
    changed = Settings(
        network=True,
        notebook_folder=FolderMode.WRITE,
        keep_packages=True,
        env={"A": "1"},
        memory_bytes=1,
        cpus=2.0,
        processes=3,
        file_bytes=4,
        accept_weaker_limits=True,
        allow_ptrace=True,
        sleep_after=5.0,
        keep_alive=True,
        output_policy=Mode.STRICT,
    )

    before, after = Settings().spec(), changed.spec()

    same = [
        field.name
        for field in dataclasses.fields(after)
        if getattr(before, field.name) == getattr(after, field.name)
    ]
    # The engine of the settings may change between two starts, as long as nobody chose another.
    assert same == [
        "engine",
        "image",
        "notebook_folder",
        "folder_required",
        "python_prefix",
        "python_base_prefix",
    ]
    assert (after.limits.memory_bytes, after.limits.file_bytes) == (1, 4)


def test_the_way_to_a_running_sandbox_is_light():
    """The relay's imports stay free of event loops, traitlets and Jupyter."""
    code = (
        "import sys, sandbox_kernel.manager.manager\n"
        "heavy = {'asyncio', 'traitlets', 'jupyter_core', 'tornado', 'zmq', 'importlib.metadata'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
