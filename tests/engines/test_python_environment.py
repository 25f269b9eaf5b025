"""What of a Python environment is shown."""

from __future__ import annotations

from sandbox_kernel.engines.folders import HostFolders
from sandbox_kernel.engines.python_environment import PythonEnvironment, show

HOST = HostFolders(
    homes=("/home/ada",), private=("/home/ada/.local/bin", "/home/ada/.local/share/jupyter")
)


def shown(
    prefix: str,
    base_prefix: str,
    *hops: str,
    links: dict[str, str] | None = None,
    ours: bool = True,
) -> PythonEnvironment:
    def real(path: str) -> str:
        for name, target in (links or {}).items():
            if path == name or path.startswith(name + "/"):
                return target + path[len(name) :]
        return path

    return show(
        prefix,
        base_prefix,
        f"{prefix}/bin/python",
        HOST,
        hops=list(hops),
        real=real,
        is_ours=lambda _: ours,
    )


def test_a_virtual_environment_of_the_systems_python() -> None:
    """/usr is there anyway; the environment gets a layer."""
    found = shown("/home/ada/p/.venv", "/usr", "/usr/bin/python3", "/usr/bin/python3.12")

    assert found.layered == "/home/ada/p/.venv"
    assert found.folders == ()
    assert found.interpreter == "/home/ada/p/.venv/bin/python"


def test_a_virtual_environment_of_a_python_in_the_home() -> None:
    """The Python it was made from is shown too, read-only."""
    base = "/home/ada/.pyenv/versions/3.12.1"

    found = shown("/projects/p/.venv", base, f"{base}/bin/python3", f"{base}/bin/python3.12")

    assert found.layered == "/projects/p/.venv"
    assert found.folders == (base,)


def test_an_environment_without_a_base() -> None:
    """pyenv's or conda's own: one folder, with a layer."""
    base = "/home/ada/miniconda3"

    found = shown(base, base, f"{base}/bin/python3.12")

    assert found.layered == base
    assert found.folders == ()


def test_a_chain_through_linked_folders() -> None:
    """Each name on the way to the interpreter exists inside."""
    alias = "/home/ada/.local/share/uv/python/cpython-3.12-linux"
    real = "/home/ada/.local/share/uv/python/cpython-3.12.4-linux"

    found = shown("/projects/.venv", alias, f"{alias}/bin/python3.12", links={alias: real})

    assert found.folders == (real,)
    assert found.links == {alias: real}


def test_the_systems_python_gets_no_layer() -> None:
    """pip installs beside it."""
    found = shown("/usr", "/usr", "/usr/bin/python3.12")

    assert found.layered is None
    assert found.folders == ()


def test_an_environment_of_somebody_else_gets_no_layer() -> None:
    """Inside, its files belong to nobody, and a layer over it could not be written."""
    found = shown("/opt/shared", "/opt/shared", ours=False)

    assert found.layered is None
    assert found.folders == ("/opt/shared",)


def test_an_interpreter_in_the_home_does_not_show_the_home() -> None:
    """Of a prefix that holds private things, Python's own parts are enough."""
    found = shown("/projects/.venv", "/home/ada/.local", "/home/ada/.local/bin/python3.12")

    assert set(found.folders) == {
        f"/home/ada/.local/{part}" for part in ("bin", "lib", "lib64", "include")
    }
    assert "/home/ada" not in shown("/home/ada", "/home/ada").folders
    assert shown("/home/ada", "/home/ada").layered is None


def test_folders_inside_shown_ones_are_not_shown_twice() -> None:
    """One mount is enough."""
    found = shown("/projects/.venv", "/opt/python", "/opt/python/3/bin/python3")

    assert found.folders == ("/opt/python",)


def test_the_runtime_runs_by_a_path_that_cannot_be_changed_inside() -> None:
    """A layer that persists must not decide what the next container starts with."""
    base = "/opt/python"

    assert shown("/projects/.venv", base, f"{base}/bin/python3").runtime_interpreter == (
        f"{base}/bin/python3"
    )
    assert shown(base, base, f"{base}/bin/python3").runtime_interpreter == f"{base}/bin/python"
    assert shown("/usr", "/usr").runtime_interpreter == "/usr/bin/python"
