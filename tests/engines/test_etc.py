"""The sandbox's own /etc, and what of the host's settings reaches the network inside."""

from __future__ import annotations

import pytest

from sandbox_kernel.engines.etc import (
    etc_files,
    etc_links,
    etc_mounts,
    network_environment,
    public_pip_settings,
    without_credentials,
)

HOST = {
    "/etc/hosts": b"10.0.0.5 internal\n",
    "/etc/resolv.conf": b"nameserver 10.0.0.1\n",
    "/etc/passwd": b"ada:x:1000:1000:Ada Lovelace:/home/ada:/bin/zsh\n",
    "/etc/pip.conf": b"[global]\nindex-url = https://pypi.example/simple\n",
    "/etc/ld.so.cache": b"cache",
}


def files(*, network: bool) -> dict[str, bytes]:
    return etc_files("demo", network=network, shell="/bin/bash", read=HOST.get)  # noqa: S604 - a path


def test_the_hosts_users_are_not_shown() -> None:
    """One user, as inside; nobody of the host."""
    users = files(network=True)["/etc/passwd"].decode()

    assert "user:x:1000:1000:user:/home/user:/bin/bash" in users
    assert "ada" not in users


def test_names_of_the_network_come_with_the_network() -> None:
    """Without it, only the sandbox itself has a name."""
    closed, opened = files(network=False), files(network=True)

    assert b"internal" not in closed["/etc/hosts"]
    assert b"127.0.0.1 demo" in closed["/etc/hosts"]
    assert "/etc/resolv.conf" not in closed
    assert "/etc/pip.conf" not in closed
    assert b"internal" in opened["/etc/hosts"]
    assert opened["/etc/resolv.conf"] == HOST["/etc/resolv.conf"]
    assert b"pypi.example" in opened["/etc/pip.conf"]


@pytest.mark.parametrize(
    ("url", "is_public"),
    [
        ("https://pypi.example/simple", True),
        ("https://pypi.example/simple/@scope", True),
        ("https://ada:secret@pypi.example/simple", False),
        ("https://token@pypi.example/simple", False),
        ("http://proxy.example:3128", True),
        ("http://ada:secret@proxy.example:3128", False),
        ("https://a.example https://x:y@b.example", False),
        ("localhost,.example", True),
        ("", True),
    ],
)
def test_addresses_with_a_login_are_recognised(url: str, is_public: bool) -> None:  # noqa: FBT001
    """Wherever it stands in a list."""
    assert without_credentials(url) is is_public


def test_pip_settings_lose_their_secrets() -> None:
    """What says where packages come from stays; log-ins and the rest go."""
    text = (
        "[global]\nindex-url = https://u:p@private.example/simple\n"
        "extra-index-url = https://public.example/simple\ntrusted-host = public.example\n"
        "client-cert = /home/ada/key.pem\n[install]\nuser = yes\n"
    )

    public = public_pip_settings(text)

    assert "public.example" in public
    assert "private.example" not in public
    assert "key.pem" not in public
    assert public_pip_settings("no configuration at all") == ""


def test_variables_of_the_network_lose_their_secrets() -> None:
    """Certificates count only where their files are shown."""
    found = network_environment(
        {
            "https_proxy": "http://ada:secret@proxy.example",
            "http_proxy": "http://proxy.example",
            "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
            "REQUESTS_CA_BUNDLE": "/home/ada/ca.pem",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
    )

    assert found == {
        "http_proxy": "http://proxy.example",
        "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
    }


@pytest.mark.parametrize("network", [False, True])
def test_certificates_are_shown_and_private_keys_are_not(network: bool) -> None:  # noqa: FBT001
    """pip of a distribution wants the certificates first; beside them lie keys."""
    shown = etc_mounts(network=network, exists=lambda _: True)

    assert "/etc/ssl/certs" in shown
    assert not {"/etc/ssl", "/etc/ssl/private", "/etc/pki", "/etc/pki/tls"} & set(shown)


def test_the_time_zone_is_the_hosts() -> None:
    """A link into the zones, which lie below /usr."""
    links = etc_links(lambda _: "/usr/share/zoneinfo/Europe/London")

    assert links["/etc/localtime"] == "/usr/share/zoneinfo/Europe/London"
    assert "/etc/localtime" not in etc_links(lambda _: None)
