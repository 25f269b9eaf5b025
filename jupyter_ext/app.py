"""The extension application: puts our kernel connection in place and hands settings to kernels."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from tornado.httpserver import HTTPServer
from traitlets.config import Config

from jupyter_ext import (
    frame_documents,
    hardening,
    metrics,
    preview,
    routes,
    static,
)
from jupyter_ext.hardening import JupyterSandbox
from jupyter_ext.kernel_ws import SandboxKernelWebsocketConnection
from jupyter_ext.preview import SandboxPreview
from jupyter_ext.schedule import SandboxPool, Schedule, serve_pool, stop_with
from sandbox_kernel.config import CONFIGURABLES, checked

__all__ = ["SandboxExtension", "settings_for_kernels"]


class SandboxExtension(ExtensionApp):
    """Loaded by every Jupyter server of the environment the project is installed in."""

    name = "jupyter_ext"
    classes = [JupyterSandbox, SandboxPool, SandboxPreview, *CONFIGURABLES]  # noqa: RUF012  the base declares an instance variable

    _previews: HTTPServer | None = None
    _pool: Schedule | None = None
    _withdraw_metrics: Callable[[], None] | None = None

    @property
    def is_locked(self) -> bool:
        """Whether nothing on this server shall run outside of sandboxes."""
        return JupyterSandbox(config=self.config).locked

    def _link_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        """Put what the server's configuration says about sandboxes where its kernels find it."""
        super()._link_jupyter_server_extension(serverapp)
        settings = settings_for_kernels(self.config, inherited=os.environ.get("SANDBOX_CONFIG"))
        if self.is_locked:
            hardening.lock(serverapp)
            kernel = settings.setdefault("SandboxKernelApp", {})
            # The pages' own policy lets nothing run that stands in an output.
            kernel["frame_url"] = f"{serverapp.base_url}sandbox/frame/"
        if settings:
            # Kernels inherit the server's environment; a kernel provisioner needs no change.
            os.environ["SANDBOX_CONFIG"] = json.dumps(settings, sort_keys=True)

    def initialize_handlers(self) -> None:
        """Serve our routes, below ``<base_url>sandbox/``; a locked server has some of its own."""
        for module in (frame_documents, preview, static):
            self.handlers.extend(module.HANDLERS)
        self.handlers.extend(routes.handlers())
        if self.is_locked and self.serverapp is not None:
            self.handlers.extend(hardening.handlers(self.serverapp))
        if self.serverapp is not None:
            self._previews = preview.serve_hosts(
                self.serverapp, SandboxPreview(config=self.config), is_locked=self.is_locked
            )

    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        """Begin what runs beside the server's own, now that its loop runs."""
        self._pool = serve_pool(serverapp, SandboxPool(config=self.config))
        self._withdraw_metrics = metrics.offer()

    async def stop_extension(self) -> None:
        """End what was begun beside the server's own."""
        if self._withdraw_metrics is not None:
            await asyncio.to_thread(self._withdraw_metrics)
        if self._pool is not None:
            await self._pool.aclose()
        if JupyterSandbox(config=self.config).stop_sandboxes and self.serverapp is not None:
            await stop_with(self.serverapp)
        if self._previews is not None:
            self._previews.stop()
            await self._previews.close_all_connections()

    def initialize_settings(self) -> None:
        """Take the place of the stock kernel connection, and of no other.

        This runs after the server has decided on its class, so that a gateway's, another
        extension's or the user's own choice is seen, whichever way it was made.
        """
        if self.is_locked and self.serverapp is not None:
            hardening.make_sure(self.serverapp)
        key = "kernel_websocket_connection_class"
        # Named in configuration, the stock class is a choice too.
        chosen = key in self.config.get("ServerApp", {})
        if self.settings.get(key) is ZMQChannelsWebsocketConnection and not chosen:
            self.settings[key] = SandboxKernelWebsocketConnection
            if self.serverapp is not None:
                self.serverapp.kernel_websocket_connection_class = SandboxKernelWebsocketConnection


def settings_for_kernels(config: Config, *, inherited: str | None) -> dict[str, dict[str, Any]]:
    """Return what SANDBOX_CONFIG shall hold: per class, the settings that somebody made.

    Parameters
    ----------
    config : Config
        The server's configuration, command line included.
    inherited : str, optional
        The variable as the server itself found it; the server's own configuration wins over it.
    """
    settings: dict[str, dict[str, Any]] = json.loads(inherited) if inherited else {}
    # The traits parse as they check: a value of the command line is still a string here.
    for group, made in checked(config).items():
        settings[group] = {**settings.get(group, {}), **made}
    return settings
