"""Hands out documents of framed outputs, each in an origin of its own."""

from __future__ import annotations

from jupyter_server.base.handlers import JupyterHandler
from tornado import web

from sandbox_kernel.manager.frames import FrameStore, frame_folder
from sandbox_kernel.manager.settings import data_folder

__all__ = ["HANDLERS", "FrameHandler"]

# What the frame may load stands in the document itself, before anything else: the relay wrote that.
_POLICY = (
    "sandbox allow-scripts; frame-ancestors 'self'; base-uri 'none'; form-action 'none';"
    " object-src 'none'; frame-src 'none'; webrtc 'block'"
)
_GONE = (
    '<!doctype html><meta charset="utf-8"><title>Not kept</title>'
    "<p style='font: 14px sans-serif; color: #555'>This output is no longer kept."
    " Run the cell to see it."
)


class FrameHandler(JupyterHandler):
    """One document, by its digest."""

    auth_resource = "contents"

    @property
    def content_security_policy(self) -> str:
        """Give the document an origin of its own, whether a frame asks for it or a window."""
        return _POLICY

    @web.authenticated
    def get(self, digest: str) -> None:
        """Answer with the document."""
        document = FrameStore(frame_folder(data_folder() / "sandbox")).read(digest)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Referrer-Policy", "no-referrer")
        if document is None:
            self.set_status(404)
            self.finish(_GONE)
            return
        # The name is of the contents.
        self.set_header("Cache-Control", "private, max-age=31536000, immutable")
        self.finish(document)


HANDLERS = [(r"/sandbox/frame/([0-9a-f]{64})", FrameHandler)]
