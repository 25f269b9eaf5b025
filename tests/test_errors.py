"""The error tree: each class is known again by what is sent of it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import get_type_hints

import pytest

from sandbox_kernel import errors
from sandbox_kernel.errors import InvalidSandboxIdError, SandboxError

SAMPLES = {str: "some text", int: 7, float: 1.5, bool: True}


def classes(root: type[SandboxError] = SandboxError) -> Iterator[type[SandboxError]]:
    yield root
    for each in root.__subclasses__():
        yield from classes(each)


def made(cls: type[SandboxError]) -> SandboxError:
    """Return an error of this class, from samples of the facts that it takes."""
    init = cls.__init__
    hints = get_type_hints(init, {**vars(errors), **vars(__import__("typing"))})
    facts = {
        name: SAMPLES.get(hints[name], "some text")
        for name, each in inspect.signature(init).parameters.items()
        if name != "self" and each.default is inspect.Parameter.empty
    }
    return cls(**facts)


OURS = [each for each in classes() if each.__module__ == errors.__name__]


@pytest.mark.parametrize("cls", OURS, ids=lambda each: each.__name__)
def test_a_class_survives_the_wire(cls: type[SandboxError]) -> None:
    """As itself, with its facts, through JSON."""
    error = made(cls)

    back = SandboxError.from_wire(json.loads(json.dumps(error.to_wire())))

    assert type(back) is cls
    assert (back.code, back.http_status) == (error.code, error.http_status)
    assert (back.message, back.hint, back.context) == (error.message, error.hint, error.context)
    assert str(back) == str(error)


def test_every_public_class_is_among_them() -> None:
    """The drawing, the public names and the classes are the same set."""
    names = {each.__name__ for each in OURS}

    assert names == set(errors.__all__)
    assert all(f" {name}" in str(errors.__doc__) for name in names)


def test_each_class_has_a_code_of_its_own() -> None:
    """So that none is taken for its parent at the other end."""
    assert all("code" in vars(each) for each in OURS)
    assert len({each.code for each in OURS}) == len(OURS)


def test_a_code_that_is_taken_cannot_be_given_to_another_class() -> None:
    with pytest.raises(TypeError, match="NO_SPACE is the code of NoSpaceError already"):

        class AnotherError(SandboxError):
            code = "NO_SPACE"

    assert isinstance(SandboxError.from_wire({"code": "NO_SPACE"}), errors.NoSpaceError)


def test_further_codes_of_one_class_lead_to_it() -> None:
    """An id is told which of the rules it breaks."""
    error = InvalidSandboxIdError("A", "a rule", code="INVALID_SANDBOX_ID_HYPHENS")

    back = SandboxError.from_wire(error.to_wire())

    assert type(back) is InvalidSandboxIdError
    assert back.code == "INVALID_SANDBOX_ID_HYPHENS"


def test_an_unknown_code_is_kept() -> None:
    """A newer peer's error is told as it is, by the root of the tree."""
    back = SandboxError.from_wire({"code": "FROM_THE_FUTURE", "message": "It is."})

    assert type(back) is SandboxError
    assert (back.code, str(back)) == ("FROM_THE_FUTURE", "It is.")
