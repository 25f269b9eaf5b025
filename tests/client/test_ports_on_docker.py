"""Ports of sandboxes on a real Docker engine, whose containers have no network either."""

from __future__ import annotations

import pytest

from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.errors import ServiceNotRespondingError, StalePreviewUrlError
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.docker import docker_engine

PORT = 8000


@pytest.fixture(params=["socket", "tcp"])
def manager(request, data_dir):
    engine = docker_engine(**({"door": "tcp"} if request.param == "tcp" else {}))
    made = Manager(Settings(data_dir=data_dir, engine="docker"), engines={"docker": engine})
    yield made
    for info in made.list():
        made.destroy(info.sandbox_id)
    made.close()


async def test_ports_by_either_door(manager):
    """Listening, waiting, connecting and tokens are as on the other engine."""
    async with get_sandbox("demo", manager=manager) as sandbox:
        argv = ["python3", "-m", "http.server", str(PORT), "--bind", "127.0.0.1"]
        server = await sandbox.start_process(argv)
        assert (await server.wait_for_port(PORT, mode="http", timeout=20)).status == 200
        assert [each.port for each in await sandbox.list_ports()] == [PORT]
        exposed = await sandbox.expose_port(PORT)
        async with sandbox.connect_exposed_port(PORT, exposed.token) as (reader, writer):
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.0 200 ")
        with pytest.raises(ServiceNotRespondingError):
            async with sandbox.connect_port(PORT + 1):
                pass
        await sandbox.stop()
        with pytest.raises(StalePreviewUrlError):
            async with sandbox.connect_exposed_port(PORT, exposed.token):
                pass
