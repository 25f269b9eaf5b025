"""Which sandbox and interpreter a relay serves: the same ones at every start for one notebook."""

from __future__ import annotations

import pytest

from sandbox_kernel.kernel.identity import Identity, choose
from sandbox_kernel.manager.identity import check_sandbox_id


def pick(
    session_name: str = "",
    *,
    connection_file: str = "/run/kernel-1.json",
    key: bytes = b"k",
    sandbox_id: str = "",
    configured: str | None = None,
) -> Identity:
    environ = {"JPY_SESSION_NAME": session_name, "SANDBOX_ID": sandbox_id}
    return choose(
        connection_file=connection_file,
        key=key,
        environ={name: value for name, value in environ.items() if value},
        cwd="/home/me/study",
        configured_id=configured,
    )


def test_a_notebook_has_one_sandbox_and_one_interpreter_for_ever() -> None:
    """Another server, another connection file: the notebook's path decides."""
    one = pick("/home/me/study/My Study.ipynb")
    two = pick("/home/me/study/My Study.ipynb", connection_file="/run/kernel-2.json", key=b"z")

    assert (one.sandbox_id, one.kernel_id) == (two.sandbox_id, two.kernel_id)
    assert one.spare_kernel_id != two.spare_kernel_id
    assert one.sandbox_id.startswith("nb-my-study-")
    assert not one.ephemeral


def test_notebooks_of_one_name_in_two_folders_are_two() -> None:
    assert pick("/a/x.ipynb").sandbox_id != pick("/b/x.ipynb").sandbox_id


def test_a_relative_path_is_completed_with_the_notebooks_folder() -> None:
    assert pick("study/x.ipynb") == pick("/home/me/study/x.ipynb")


@pytest.mark.parametrize("session_name", ["", "console-1-8f2c", "/home/me/study/console-1-8f2c"])
def test_what_belongs_to_no_file_gets_a_sandbox_that_ends_with_the_kernel(
    session_name: str,
) -> None:
    chosen = pick(session_name)

    assert chosen.ephemeral
    assert chosen == pick(session_name)
    assert chosen.sandbox_id != pick(session_name, key=b"other").sandbox_id


def test_a_named_sandbox_is_shared_by_interpreters_of_their_own() -> None:
    """The environment names it before the settings do."""
    one = pick("/a/x.ipynb", sandbox_id="dev", configured="other")
    two = pick("/a/y.ipynb", configured="dev")

    assert one.sandbox_id == two.sandbox_id == "dev"
    assert one.kernel_id != two.kernel_id
    assert not one.ephemeral


@pytest.mark.parametrize(
    "name", ["/x/ÄÖÜ 日本.ipynb", "/x/" + "n" * 200 + ".ipynb", "/x/---.ipynb"]
)
def test_every_path_makes_a_sandbox_id_that_is_allowed(name: str) -> None:
    check_sandbox_id(pick(name).sandbox_id)
    check_sandbox_id(pick().sandbox_id)
