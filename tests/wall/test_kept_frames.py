"""Frames whose documents are handed out by a server."""

from __future__ import annotations

import pytest

from sandbox_kernel.wall import forms, frames
from sandbox_kernel.wall.modes import Mode, Wall

DIGEST = "0123456789abcdef" * 4


class Keeper:
    url = "/user/ada/sandbox/frame/"

    def __init__(self, digest: str | None = DIGEST) -> None:
        self.digest = digest
        self.kept: list[str] = []

    def keep(self, document: str) -> str | None:
        self.kept.append(document)
        return self.digest


def shown(html: str, wall: Wall) -> str:
    data, _ = forms.bundle({"text/html": html}, {}, wall)
    return str(data.get("text/html") or data["text/plain"])


def test_the_output_holds_the_address():
    """The document that is kept is the whole of what would have stood in the output."""
    keeper = Keeper()

    framed = shown("<script>1</script>", Wall(keeper=keeper))

    assert f"src='/user/ada/sandbox/frame/{DIGEST}'" in framed
    assert 'sandbox="allow-scripts"' in framed
    assert "srcdoc" not in framed
    assert "<script>1</script>" in keeper.kept[0]
    assert keeper.kept[0].index("Content-Security-Policy") < keeper.kept[0].index("<script")
    assert frames.kept_at(framed) == "/user/ada/sandbox/frame/"


def test_a_document_that_is_not_kept_stays_in_the_output():
    """A full disk, or one that is too large."""
    assert "srcdoc=" in shown("<script>1</script>", Wall(keeper=Keeper(None)))


def test_a_frame_that_comes_back_is_not_framed_again():
    """Pages keep outputs in widgets of the sandbox."""
    wall = Wall(keeper=Keeper())
    framed = shown("<script>1</script>", wall)

    assert shown(framed, wall) == framed
    assert "srcdoc=" not in shown(framed, Wall(mode=Mode.STRICT, keeper=Keeper()))


@pytest.mark.parametrize("keeper", [None, Keeper()])
@pytest.mark.parametrize("url", ["/files/", "/user/eve/sandbox/frame/", "/files/sandbox/frame/"])
def test_a_frame_of_another_address_is_withheld(keeper, url):
    """What lies there may be a file that the sandbox has written, and has no policy."""
    framed = shown("<script>1</script>", Wall(keeper=Keeper())).replace(Keeper.url, url)
    data, _ = forms.bundle({"text/html": framed}, {}, Wall(keeper=keeper))

    assert data.keys() == {"text/plain"}
    assert "run its cell again" in data["text/plain"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (DIGEST, f"{DIGEST}/../../../api"),
        (DIGEST, f"{DIGEST}?x=1"),
        ("/user/ada", "//example.com"),
        ("/user/ada", "https://example.com"),
        ("allow-scripts", "allow-scripts allow-same-origin"),
        ("</iframe>", "</iframe><script>1</script>"),
        ("src='", "onload='1' src='"),
    ],
)
def test_nothing_else_passes_as_such_a_frame(old, new):
    """What is no such frame to the letter is framed itself."""
    framed = shown("<script>1</script>", Wall(keeper=Keeper())).replace(old, new)

    assert frames.kept_at(framed) is None
    assert "srcdoc=" in shown(framed, Wall())
