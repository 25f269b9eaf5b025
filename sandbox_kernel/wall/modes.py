"""What a judgement depends on: the mode, the sandbox's network, the limits.

All of it is set on the host.  Neither a notebook's metadata nor code in the sandbox reaches it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from sandbox_kernel.errors import SandboxConfigurationError

__all__ = ["FRAME_SOURCES", "FrameKeeper", "Mode", "OutputLimits", "Wall"]


class Mode(StrEnum):
    """How much a page draws of what a sandbox sends."""

    STRICT = "strict"
    """No frames: HTML that acts is reduced to what does not."""
    DEFAULT = "default"
    """HTML that acts is drawn in a frame of its own, where it reaches nothing of the page."""
    TRUSTED = "trusted"
    """As from a local kernel: outputs may act in the page, and so on the host."""


FRAME_SOURCES = (
    "https://cdn.jsdelivr.net",
    "https://unpkg.com",
    "https://cdnjs.cloudflare.com",
    "https://cdn.plot.ly",
    "https://cdn.bokeh.org",
    "https://cdn.pydata.org",
    "https://cdn.datatables.net",
    "https://code.jquery.com",
    "https://ajax.googleapis.com",
    "https://maxcdn.bootstrapcdn.com",
    "https://netdna.bootstrapcdn.com",
    "https://fonts.googleapis.com",
    "https://fonts.gstatic.com",
    "https://d3js.org",
    "https://*.openstreetmap.org",
    "https://*.basemaps.cartocdn.com",
)
"""Where plotting libraries load their scripts, styles and map data from."""


_SOURCE = re.compile(r"https?:|https?://[A-Za-z0-9*.:_-]+(?:/[A-Za-z0-9._~/-]*)?")


@dataclass(frozen=True, kw_only=True)
class OutputLimits:
    """``c.OutputLimits``."""

    message_bytes: int = 128 << 20
    """Most bytes of an output or reply, the buffers of widgets aside."""
    depth: int = 100
    """Most levels of nesting in a message; 100 is the most there is."""
    forms: int = 50
    """Most MIME types that one output may come in."""
    inline_bytes: int = 256 << 10
    """Most bytes of HTML that is cleaned and drawn in the page itself; what is larger, or has more
    than 2000 elements, is framed."""
    frame_sources: tuple[str, ...] = FRAME_SOURCES
    """Where frames may load scripts, styles, fonts and data from if the sandbox has network."""

    def __post_init__(self) -> None:
        for name in ("message_bytes", "depth", "forms", "inline_bytes"):
            if getattr(self, name) < 1:
                raise SandboxConfigurationError(
                    f"OutputLimits.{name} = {getattr(self, name)} lets nothing pass.",
                    context={"setting": f"OutputLimits.{name}"},
                )
        for source in self.frame_sources:
            if not _SOURCE.fullmatch(source):
                raise SandboxConfigurationError(
                    f"OutputLimits.frame_sources has {source!r}, which is no source of frames.",
                    hint='A source is like "https://cdn.example.org" or "https:".',
                    context={"setting": "OutputLimits.frame_sources"},
                )


class FrameKeeper(Protocol):
    """Whoever hands out documents of frames, for pages whose own policy allows no others."""

    @property
    def url(self) -> str:
        """What their addresses begin with; a digest follows."""
        ...

    def keep(self, document: str) -> str | None:
        """Return the digest under which a document is handed out, or None if it is not."""
        ...


@dataclass(frozen=True, kw_only=True)
class Wall:
    """What every judgement of one sandbox's outputs depends on.

    Parameters
    ----------
    mode : Mode
        How much is drawn.
    network : bool
        Whether the sandbox has network.  Without, nothing it prints makes a browser load anything:
        what a sandbox may not send by itself, a page shall not send for it.
    limits : OutputLimits
        Sizes and sources.
    keeper : FrameKeeper, optional
        Where the documents of frames are handed out; without, outputs hold them themselves.
    """

    mode: Mode = Mode.DEFAULT
    network: bool = False
    limits: OutputLimits = field(default_factory=OutputLimits)
    keeper: FrameKeeper | None = field(default=None, compare=False)

    @property
    def is_off(self) -> bool:
        """Whether outputs pass as they came."""
        return self.mode is Mode.TRUSTED

    @property
    def frames(self) -> bool:
        """Whether what acts is framed; else it is left out."""
        return self.mode is Mode.DEFAULT

    @property
    def loads(self) -> bool:
        """Whether outputs may make a browser load something from the network."""
        return self.network and self.mode is not Mode.STRICT
