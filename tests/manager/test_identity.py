from __future__ import annotations

import pytest

from sandbox_kernel.errors import InvalidSandboxIdError, SandboxError
from sandbox_kernel.manager.identity import check_sandbox_id, new_ephemeral_id


@pytest.mark.parametrize("sandbox_id", ["a", "my-sandbox", "0", "a--b", "x" * 63, "k-00ff"])
def test_labels_are_accepted_as_they_are(sandbox_id):
    """A lower-case DNS label names a sandbox and is not changed."""
    assert check_sandbox_id(sandbox_id) == sandbox_id


@pytest.mark.parametrize(
    ("sandbox_id", "code"),
    [
        ("", "INVALID_SANDBOX_ID_LENGTH"),
        ("x" * 64, "INVALID_SANDBOX_ID_LENGTH"),
        ("-a", "INVALID_SANDBOX_ID_HYPHENS"),
        ("a-", "INVALID_SANDBOX_ID_HYPHENS"),
        ("-", "INVALID_SANDBOX_ID_HYPHENS"),
        ("www", "RESERVED_SANDBOX_ID"),
        ("Admin", "RESERVED_SANDBOX_ID"),
        ("CLOUDFLARE", "RESERVED_SANDBOX_ID"),
        ("a/b", "INVALID_SANDBOX_ID"),
        ("..", "INVALID_SANDBOX_ID"),
        ("a b", "INVALID_SANDBOX_ID"),
        ("a\n", "INVALID_SANDBOX_ID"),
        ("a\0", "INVALID_SANDBOX_ID"),
        ("kürzel", "INVALID_SANDBOX_ID"),
        ("a_b", "INVALID_SANDBOX_ID"),
        ("\u0661", "INVALID_SANDBOX_ID"),
        ("MyProject", "INVALID_SANDBOX_ID"),
    ],
)
def test_each_broken_rule_has_its_code(sandbox_id, code):
    """The error of each rule carries the code that the Sandbox SDK gives it."""
    with pytest.raises(InvalidSandboxIdError) as caught:
        check_sandbox_id(sandbox_id)

    assert caught.value.code == code
    assert isinstance(SandboxError.from_wire(caught.value.to_wire()), InvalidSandboxIdError)


def test_normalizing_lowers_the_id_before_it_becomes_the_identity():
    """With normalize_id, MyProject is the sandbox myproject, and reserved words stay reserved."""
    assert check_sandbox_id("MyProject", normalize_id=True) == "myproject"
    with pytest.raises(InvalidSandboxIdError, match="normalize_id"):
        check_sandbox_id("MyProject")
    with pytest.raises(InvalidSandboxIdError, match="reserved"):
        check_sandbox_id("API", normalize_id=True)


def test_ephemeral_ids_are_valid_and_not_sequential():
    """Nobody can count through the ids that we make."""
    made = {new_ephemeral_id() for _ in range(100)}

    assert len(made) == 100
    assert all(check_sandbox_id(each) == each for each in made)
