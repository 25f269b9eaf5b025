"""Through a whole relay: the host chooses how outputs are judged, and nobody else."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.support.kernel_driver import Kernel
from tests.support.page_judge import active_parts

SHOW = (
    "from IPython.display import HTML, Javascript, Markdown, display\n"
    "display(HTML('<script>window.__ran=1</script><b>kept</b>'), Javascript('window.__ran=1'),"
    " Markdown('*m* <script>1</script>'))"
)


def settings(policy: str) -> dict[str, str]:
    return {"SANDBOX_CONFIG": json.dumps({"SandboxManager": {"output_policy": policy}})}


@pytest.mark.parametrize("policy", ["strict", "default", "trusted"])
def test_the_host_chooses_and_the_kernel_tells(start: Callable[..., Kernel], policy: str) -> None:
    """In the banner if outputs are trusted, and always in ``%sandbox status``."""
    kernel = start(**settings(policy))
    shown = kernel.cell(SHOW).displays
    status = kernel.cell("%sandbox status").text
    banner = kernel.ask("kernel_info_request")["banner"]

    page = str(shown[0]["text/html"]).partition("srcdoc=")[0]
    if policy == "trusted":
        assert "<script>" in page
        assert shown[1]["application/javascript"] == "window.__ran=1"
        assert "TRUSTED" in status
        assert "Outputs of this sandbox are trusted" in banner
        return
    for data in shown:
        assert active_parts(data, frames=policy == "default") == []
    assert page.startswith("<iframe " if policy == "default" else "<b>kept</b>")
    assert "withheld" in shown[1]["text/plain"]
    assert f"outputs          {policy}:" in status
    assert "trusted" not in banner


def test_code_in_the_sandbox_does_not(start: Callable[..., Kernel]) -> None:
    """Neither by environment, files of settings, metadata nor messages of its own."""
    kernel = start()
    tried = kernel.cell(
        "import os, json, pathlib\n"
        f"os.environ.update({settings('trusted')!r})\n"
        "own = pathlib.Path.home() / '.jupyter'; own.mkdir(exist_ok=True)\n"
        "(own / 'jupyter_sandbox_config.json').write_text(os.environ['SANDBOX_CONFIG'])\n"
        "from IPython.display import publish_display_data\n"
        "publish_display_data({'text/html': '<script>1</script>'},"
        " metadata={'output_policy': 'trusted', 'text/html': {'isolated': True}})"
    )
    again = kernel.cell(SHOW).displays

    first = tried.of_type("display_data")[0]["content"]
    assert first["metadata"] == {}
    for data in (first["data"], *again):
        assert active_parts(data, frames=True) == []


def test_a_bad_output_is_a_line_in_its_cell(start: Callable[..., Kernel]) -> None:
    """The cell goes on, and the others are shown."""
    kernel = start()
    cell = kernel.cell(
        "for _ in range(3): display({f'a/{n}': '' for n in range(99)}, raw=True)\nprint('on'); 5"
    )

    assert cell.stream("stdout") == "on\n"
    assert cell.stream("stderr").count("left out") == 1
    assert cell.result == "5"
    assert "refused" in kernel.cell("%sandbox status").text
