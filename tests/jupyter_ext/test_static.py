"""The widget's bundle, as the server hands it out."""

from __future__ import annotations

import gzip

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPResponse

from sandbox_kernel.manager.settings import data_folder
from sandbox_kernel.widget.bundle import bundle_name, bundle_source, home_id


@pytest.fixture
async def server(start_server):
    async with start_server(base_url="/user/alice/") as server:
        yield server


async def fetch(server, name: str, query: str = "token=test-token", **headers: str) -> HTTPResponse:
    return await AsyncHTTPClient().fetch(
        f"http://127.0.0.1:{server.app.port}/user/alice/sandbox/static/{name}?{query}",
        headers=headers,
        decompress_response=False,
        follow_redirects=False,
        raise_error=False,
    )


async def test_the_bundle_is_served_once_for_ever(server):
    """A script below the base URL which a browser may keep, as its name is of its contents."""
    answer = await fetch(server, bundle_name())

    assert answer.body == bundle_source()
    assert answer.headers["Content-Type"].startswith("text/javascript")
    assert answer.headers["Cache-Control"] == "private, max-age=31536000, immutable"


async def test_it_is_compressed_for_who_can_read_that(server):
    """A third of the bytes for a page that is far away."""
    answer = await fetch(server, bundle_name(), **{"Accept-Encoding": "gzip, br"})

    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(answer.body) < len(bundle_source()) / 3
    assert gzip.decompress(answer.body) == bundle_source()


async def test_a_kernel_of_another_machine_is_sent_away(server):
    """Its sandboxes are others, though their names may be the same: the kernel must serve them."""
    home = home_id(data_folder())

    assert (await fetch(server, bundle_name(), f"token=test-token&home={home}")).code == 200
    assert (await fetch(server, bundle_name(), "token=test-token&home=0123")).code == 409


async def test_another_version_is_not_here(server):
    """A kernel with another version brings its own bundle."""
    assert (await fetch(server, "terminal.0123456789abcdef.js")).code == 404
    assert (await fetch(server, "loader.js")).code == 404


async def test_strangers_get_nothing(server):
    """Who is not logged in is not told what is installed."""
    assert (await fetch(server, bundle_name(), "")).code in (302, 403)
    assert (await fetch(server, bundle_name(), "token=wrong")).code in (302, 403)
