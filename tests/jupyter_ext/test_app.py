"""The extension application: settings on their way from the server to its kernels."""

from __future__ import annotations

import json
import os

from traitlets.config import Config

from jupyter_ext import _jupyter_server_extension_points
from jupyter_ext.app import settings_for_kernels


def test_the_extension_names_its_application():
    """What jupyter_server asks an extension's package for."""
    (point,) = _jupyter_server_extension_points()

    assert point["module"] == "jupyter_ext"
    assert point["app"].name == "jupyter_ext"


async def test_kernels_get_the_servers_settings_and_no_others(start_server, monkeypatch):
    """The command line's strings arrive as the values they stand for."""
    monkeypatch.setenv("SANDBOX_CONFIG", '{"SandboxManager": {"cpus": 2.0, "network": false}}')
    async with start_server("--SandboxManager.network=True", "--SandboxKernelApp.lease=60"):
        handed = json.loads(os.environ["SANDBOX_CONFIG"])

    assert handed == {
        "SandboxManager": {"cpus": 2.0, "network": True},
        "SandboxKernelApp": {"lease": 60.0},
    }


async def test_without_settings_nothing_is_handed_on(start_server):
    """The kernels then read the user's own files."""
    async with start_server():
        assert "SANDBOX_CONFIG" not in os.environ


def test_what_was_inherited_stays_unless_the_server_says_otherwise():
    """A server inside a configured environment passes it on."""
    config = Config({"SandboxManager": {"network": True}})

    settings = settings_for_kernels(config, inherited='{"BubblewrapEngine": {"executable": "/b"}}')

    assert settings == {
        "BubblewrapEngine": {"executable": "/b"},
        "SandboxManager": {"network": True},
    }
