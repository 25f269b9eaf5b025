from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.resources import files

import sandbox_kernel


def test_every_public_name_is_there_and_is_the_one_of_its_home():
    """__all__ can be imported name by name, and each name has one home."""
    assert sorted(sandbox_kernel._HOMES) == sandbox_kernel.__all__
    for name, home in sandbox_kernel._HOMES.items():
        module = import_module(f"sandbox_kernel.{home}")
        assert getattr(sandbox_kernel, name) is getattr(module, name)
        assert name in module.__all__
        assert getattr(sandbox_kernel, name).__doc__, name


def test_dir_names_what_can_be_had():
    """Completion in a notebook shows the public names before anything is loaded."""
    assert set(sandbox_kernel.__all__) <= set(dir(sandbox_kernel))
    assert {"sync", "errors"} <= set(dir(sandbox_kernel))


def test_importing_the_package_loads_nothing():
    """The runtime imports it at every sandbox start: it must stay almost free."""
    code = (
        "import sys; before = set(sys.modules); import sandbox_kernel\n"
        "print(sorted(set(sys.modules) - before - {'__future__'}))\n"
        "try:\n    sandbox_kernel.nothing\nexcept AttributeError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == [
        "['sandbox_kernel']",
        "module 'sandbox_kernel' has no attribute 'nothing'",
    ]


def test_the_package_is_typed():
    """Type checkers of our users read our annotations."""
    assert files("sandbox_kernel").joinpath("py.typed").is_file()
