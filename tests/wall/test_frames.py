"""Frames: a place of its own for a document, with a policy that comes before all it says."""

from __future__ import annotations

import html5lib
import pytest

from sandbox_kernel.errors import SandboxConfigurationError
from sandbox_kernel.wall import frames
from sandbox_kernel.wall.frames import content_security_policy, document_in, frame
from sandbox_kernel.wall.modes import Mode, OutputLimits, Wall

OFF, ON = Wall(), Wall(network=True)


def rules(wall: Wall) -> dict[str, str]:
    """Return a frame's policy, by directive."""
    parts = (each.strip().partition(" ") for each in content_security_policy(wall).split(";"))
    return {name: sources for name, _, sources in parts}


@pytest.mark.parametrize(
    "document",
    [
        '<p>it\'s "quoted" &amp; &lt;escaped&gt; &#39; &apos;</p>',
        "</iframe></body></html><script>1</script>",
        "' onload='1' x='",
        "<!doctype html><html><head><title>t</title></head><body class=c>x</body></html>",
        "<!-- <iframe> --><script>if (1 < 2 && 3 > 2) '</s' + 'cript>'</script>",
        "&amp;amp;&quot;",
        "\N{SNOWMAN}\n\ttabs",
    ],
)
def test_a_document_is_framed_whole(document: str) -> None:
    """Whatever quotes and ends of elements it has, it comes out as it went in."""
    outer_page = html5lib.parseFragment(frame(document, OFF), namespaceHTMLElements=False)
    elements = [each for each in outer_page.iter() if isinstance(each.tag, str)]
    assert [each.tag for each in elements] == ["DOCUMENT_FRAGMENT", "iframe"]
    assert elements[1].attrib["sandbox"] == "allow-scripts"
    outer = html5lib.parse(elements[1].attrib["srcdoc"], namespaceHTMLElements=False)

    [inner] = outer.findall(".//iframe")
    assert inner.attrib["sandbox"] == "allow-scripts"
    assert document in inner.attrib["srcdoc"]
    head = inner.attrib["srcdoc"].partition("<body>")[0]
    assert "Content-Security-Policy" in head
    assert document not in head


def test_without_network_a_frame_loads_nothing() -> None:
    """Only what it brings along: inline scripts, data and blobs."""
    for wall in (OFF, Wall(mode=Mode.STRICT, network=True)):
        assert "http" not in content_security_policy(wall)
        assert "*" not in content_security_policy(wall)
    found = rules(OFF)
    assert found["default-src"] == "'none'"
    assert found["connect-src"] == "data: blob:"


@pytest.mark.parametrize("wall", [OFF, ON])
def test_a_frame_goes_nowhere(wall: Wall) -> None:
    """The inner document's own address is a source of frames to the document around it."""
    found = rules(wall)

    for name in ("frame-src", "form-action", "base-uri"):
        assert found[name] == "'none'"
    assert found["webrtc"] == "'block'"
    assert "allow-same-origin" not in frame("x", wall)
    assert "allow-top" not in frame("x", wall)


def test_with_network_a_frame_loads_from_the_list() -> None:
    wall = Wall(network=True, limits=OutputLimits(frame_sources=("https://cdn.example.org",)))
    found = rules(wall)

    for name in ("script-src", "style-src", "font-src", "connect-src"):
        assert found[name].endswith(" https://cdn.example.org")
    assert "https:" in found["img-src"].split()


@pytest.mark.parametrize(
    "source", ["https://x; script-src *", "*", "'unsafe-inline'", "https://x y", "javascript:", ""]
)
def test_a_source_is_an_address(source: str) -> None:
    with pytest.raises(SandboxConfigurationError, match="frame_sources"):
        OutputLimits(frame_sources=(source,))


@pytest.mark.parametrize("name", ["message_bytes", "depth", "forms", "inline_bytes"])
def test_a_bound_lets_something_pass(name: str) -> None:
    with pytest.raises(SandboxConfigurationError, match=name):
        OutputLimits(**{name: 0})


def test_a_frame_has_a_height_that_the_user_can_change() -> None:
    assert "height:450px" in frame("x", OFF)
    assert "resize:vertical" in frame("x", OFF)
    assert "height:99px" in frame("x", OFF, height=99)


def test_frames_of_earlier_versions_are_known() -> None:
    """Notebooks keep them; framed as they are, they would stand in a frame of their own."""
    framed = frame("<p>x</p>", OFF)
    before = frames._quoted(frames._quoted(frames._SIZER_BEFORE))
    now = frames._quoted(frames._quoted(frames._SIZER))

    assert now in framed
    assert document_in(framed.replace(now, before)) == document_in(framed) == "<p>x</p>"
    assert document_in(framed.replace(now, "")) is None
