from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sandbox_kernel.engines.base import SandboxSpec
from sandbox_kernel.manager.wanted import Wanted, differences, want

DEFAULT = SandboxSpec()


def test_without_any_choice_the_settings_hold():
    """A new sandbox, and one of which nothing was chosen, are what the settings say."""
    assert want(DEFAULT, None, None, {}) == Wanted(spec=DEFAULT)
    old = Wanted(spec=replace(DEFAULT, network=True))
    assert want(DEFAULT, old, None, {}) == Wanted(spec=DEFAULT)


def test_choices_stay_until_others_are_made():
    """A chosen field keeps its value over other settings; a new choice replaces it."""
    first = want(DEFAULT, None, None, {"network": True})
    changed = replace(DEFAULT, keep_packages=True)

    second = want(changed, first, None, {"env": {"A": "1"}})

    assert (second.spec.network, second.spec.keep_packages) == (True, True)
    assert second.chosen == {"network", "env"}
    third = want(changed, second, None, {"network": False})
    assert third.spec.network is False
    assert want(replace(changed, network=True), third, None, {}).spec.network is False


def test_of_a_whole_specification_what_differs_is_chosen():
    """A notebook asks for its folder; what equals the settings is no choice of its own."""
    first = want(DEFAULT, None, None, {"sleep_after": 5.0})

    second = want(DEFAULT, first, replace(DEFAULT, notebook_folder=Path("/a")), {})

    assert second.spec.sleep_after == 5.0
    assert second.spec.notebook_folder == Path("/a")
    assert second.chosen == {"sleep_after", "notebook_folder"}


def test_that_a_folder_must_be_shown_is_said_of_that_folder():
    """Another folder comes without the demand that was made for the first."""
    first = want(DEFAULT, None, None, {"notebook_folder": Path("/a"), "folder_required": True})

    second = want(DEFAULT, first, None, {"notebook_folder": Path("/b")})

    assert first.spec.folder_required
    assert not second.spec.folder_required


def test_differences_are_sentences():
    """Each field that a running sandbox does not give is named with both values."""
    asked = replace(DEFAULT, network=True, env={"A": "1"}, notebook_folder=Path("/b"))

    network, folder, env = sorted(differences(DEFAULT, asked), key=len, reverse=True)

    assert "network = False" in network + folder + env
    assert "/b" in network + folder + env
    assert "environment" in network + folder + env
    assert differences(DEFAULT, replace(DEFAULT, sleep_after=1.0, keep_alive=True)) == []


def test_each_limit_that_differs_has_a_sentence_of_its_own():
    asked = replace(DEFAULT, limits=replace(DEFAULT.limits, memory_bytes=1 << 30, cpus=0.5))

    assert differences(DEFAULT, asked) == [
        (
            "The running sandbox keeps the limit memory_bytes = none until its next start"
            " (asked for: 1073741824)."
        ),
        "The running sandbox keeps the limit cpus = none until its next start (asked for: 0.5).",
    ]
