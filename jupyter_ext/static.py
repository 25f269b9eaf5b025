"""Hands out the widget's bundle, to who is logged in."""

from __future__ import annotations

import functools
import gzip

from jupyter_server.base.handlers import JupyterHandler
from tornado import web

from sandbox_kernel.manager.settings import data_folder
from sandbox_kernel.widget.bundle import bundle_name, bundle_source, home_id

__all__ = ["HANDLERS", "BundleHandler"]


class BundleHandler(JupyterHandler):
    """The one file that the widget's loader imports."""

    @web.authenticated
    def get(self, name: str) -> None:
        """Answer with the bundle, if it is this version's and the widget's kernel is of here."""
        if name != bundle_name():
            raise web.HTTPError(404, "another version of the terminal's bundle is installed here")
        if self.get_query_argument("home", None) not in (None, home_id(data_folder())):
            raise web.HTTPError(409, "the widget's kernel has other sandboxes than this server")
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.set_header("Vary", "Accept-Encoding")
        # The name is of the contents.  The browser's own cache only: it is behind a login.
        self.set_header("Cache-Control", "private, max-age=31536000, immutable")
        if "gzip" in self.request.headers.get("Accept-Encoding", ""):
            self.set_header("Content-Encoding", "gzip")
            self.finish(_compressed())
        else:
            self.finish(bundle_source())


@functools.cache
def _compressed() -> bytes:
    return gzip.compress(bundle_source(), mtime=0)


HANDLERS = [(r"/sandbox/static/(terminal\.[0-9a-f]{16}\.js)", BundleHandler)]
