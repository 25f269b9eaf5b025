"""What a preview changes in heads, and where previews are: the rules as functions."""

from __future__ import annotations

import pytest

from jupyter_ext.preview_headers import (
    Place,
    Visitor,
    answer_headers,
    public_address,
    request_headers,
    without_secret,
)
from jupyter_ext.preview_place import Hosts, make_ticket, path_name, ticket_holds

OWN = Place(port=8000, origin="http://8000-web-t.localhost:8888")
SHARED = Place(
    port=8000, origin="http://hub", prefix="/u/sandbox/preview/8000-web-t.x", cookie_prefix="sbx-"
)
P = SHARED.prefix


@pytest.mark.parametrize(
    ("address", "own", "shared"),
    [
        ("/lab", "/lab", f"{P}/lab"),
        ("/lab?next=/x#y", "/lab?next=/x#y", f"{P}/lab?next=/x#y"),
        ("lab", "lab", "lab"),
        ("", "", ""),
        ("?a", "?a", "?a"),
        ("http://localhost:8000/x", "/x", f"{P}/x"),
        ("http://127.0.0.1:8000", "/", f"{P}/"),
        ("//LOCALHOST:8000/x", "/x", f"{P}/x"),
        ("ws://localhost:8000/x", "/x", f"{P}/x"),
        ("http://localhost:8001/x", "http://localhost:8001/x", "http://localhost:8001/x"),
        ("http://localhost/x", "http://localhost/x", "http://localhost/x"),
        ("https://example.org/x", "https://example.org/x", "https://example.org/x"),
        (f"{P}/x", f"{P}/x", f"{P}/x"),
        ("/../../lab", "/../../lab", f"{P}/lab"),
        ("../../../lab", "../../../lab", f"{P}/lab"),
        ("../x", "../x", f"{P}/a/x"),
        ("%2e%2E/%2e./x", "%2e%2E/%2e./x", f"{P}/x"),
        ("/..\\..\\lab", "/..\\..\\lab", f"{P}/lab"),
        (f"{P}/../../../lab", f"{P}/../../../lab", f"{P}/u/lab"),
        ("/a/..", "/a/..", f"{P}/"),
        ("/a?b=../..", "/a?b=../..", f"{P}/a?b=../.."),
    ],
)
def test_addresses_of_the_program_lead_to_the_preview(address: str, own: str, shared: str) -> None:
    """Whichever way it writes them; others are left alone."""
    assert public_address(address, OWN, "/a/b/c") == own
    assert public_address(address, SHARED, "/a/b/c") == shared


@pytest.mark.parametrize(
    ("cookie", "own", "shared"),
    [
        ("a=b", "a=b", f"sbx-a=b; Path={P}/"),
        ("a=b; Path=/x; Secure", "a=b; Path=/x; Secure", f"sbx-a=b; Secure; Path={P}/x"),
        ("a=b; domain=.localhost", "a=b", f"sbx-a=b; Path={P}/"),
        ("a=b; Path=x", "a=b; Path=x", f"sbx-a=b; Path={P}/"),
        ("__Host-a=b; Path=/", "__Host-a=b; Path=/", f"sbx-__Host-a=b; Path={P}/"),
    ],
)
def test_cookies_are_confined(cookie: str, own: str, shared: str) -> None:
    """No domain but the preview's host, no path but the preview's."""
    for place, expected in ((OWN, own), (SHARED, shared)):
        made = dict(answer_headers([("Set-Cookie", cookie)], place))
        assert made["Set-Cookie"] == expected


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ("no-referrer", "no-referrer"),
        ("Same-Origin", "same-origin"),
        ("unsafe-url", "same-origin"),
        ("no-referrer, unsafe-url", "same-origin"),
    ],
)
def test_the_address_is_told_to_nobody(given: str, policy: str) -> None:
    """It has the token in it."""
    (made,) = answer_headers([("Referrer-Policy", given)], OWN)
    assert made == ("Referrer-Policy", policy)


def test_a_page_behind_tls_is_the_programs_own() -> None:
    """The proxy in front knows the scheme, the server may not."""
    visitor = Visitor(address="192.0.2.1", scheme="http", host="x")
    given = [("Origin", OWN.origin.replace("http:", "https:"))]
    made = dict(request_headers(given, OWN, visitor))
    assert made["Origin"] == "http://localhost:8000"
    elsewhere = dict(request_headers([("Origin", "https://example.org")], OWN, visitor))
    assert elsewhere["Origin"] == "https://example.org"


@pytest.mark.parametrize(
    ("address", "left"),
    [
        ("/?token=s3cret", "/"),
        ("/?a=1&token=s3cret&b", "/?a=1&b"),
        ("/?tok%65n=s%33cret", "/"),
        ("/?token=other", "/?token=other"),
        ("/?&&a=%20", "/?&&a=%20"),
    ],
)
def test_jupyters_token_is_taken_out_of_addresses(address: str, left: str) -> None:
    """And nothing else."""
    assert without_secret(address, "s3cret") == left


# --- where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "host", "scheme", "proxied", "origin"),
    [
        ("*.localhost", "localhost:8888", "http", False, "http://L.localhost:8888"),
        ("*.localhost", "127.0.0.1:8888", "http", False, "http://L.localhost:8888"),
        ("*.localhost", "[::1]:8888", "http", False, "http://L.localhost:8888"),
        ("*.localhost", "localhost", "http", False, "http://L.localhost"),
        ("*.localhost", "localhost:8888", "https", False, None),
        ("*.localhost", "localhost:8000", "http", True, None),
        ("*.localhost", "hub.example.org", "http", False, None),
        ("", "localhost:8888", "http", False, None),
        ("*.pre.example", "hub.example", "https", True, "https://L.pre.example"),
        ("*.pre.example", "hub.example:8443", "https", True, "https://L.pre.example:8443"),
        ("https://*.pre.example:1", "hub.example:80", "http", True, "https://L.pre.example:1"),
    ],
)
def test_who_is_sent_where(
    setting: str,
    host: str,
    scheme: str,
    proxied: bool,  # noqa: FBT001
    origin: str | None,
) -> None:
    """To the machine's own names only who has come to this machine; to a domain that is set, all."""
    hosts = Hosts.of_setting(setting)
    label = "8000-web-token"
    found = hosts.origin_for(label, scheme=scheme, host=host, is_proxied=proxied)
    assert found == (None if origin is None else origin.replace("L", label))
    assert hosts.origin_for("8" * 64, scheme=scheme, host=host, is_proxied=proxied) is None


@pytest.mark.parametrize("setting", ["localhost", "*", "*.", "ftp://*.x", "*.a b", "*.x:y"])
def test_settings_of_another_form_are_refused(setting: str) -> None:
    """Rather than be of no use."""
    with pytest.raises(ValueError, match=r"not of the form"):
        Hosts.of_setting(setting)


def test_a_port_of_its_own_is_used_whatever_the_server_speaks() -> None:
    """A server with TLS has no certificate for these names."""
    hosts = Hosts.of_setting("*.localhost", own_port=9000)
    origin = hosts.origin_for("8000-w-t", scheme="https", host="localhost:8888", is_proxied=False)
    assert origin == "http://8000-w-t.localhost:9000"


def test_a_ticket_is_of_one_preview_and_one_day() -> None:
    """And of the server that gave it."""
    ticket = make_ticket(b"key", "8000-web-t", 1000.0)
    name = path_name(f"8000-web-t.{ticket}")
    assert name is not None
    assert (name.label, name.ticket, name.target.port) == ("8000-web-t", ticket, 8000)
    assert ticket_holds(b"key", "8000-web-t", ticket, 1000.0)
    assert not ticket_holds(b"key", "8000-web-t", ticket, 1000.0 + 86401)
    assert not ticket_holds(b"other", "8000-web-t", ticket, 1000.0)
    assert not ticket_holds(b"key", "8000-web-u", ticket, 1000.0)
    later = f"ffffffffff-{ticket.partition('-')[2]}"
    assert not ticket_holds(b"key", "8000-web-t", later, 1000.0)
    for wrong in ("", "-", "x-y", "1-\xe9", ticket[:-1]):
        assert not ticket_holds(b"key", "8000-web-t", wrong, 1000.0)


@pytest.mark.parametrize("segment", ["", "8000", "80-web-t", "8000-web-T", "8000-WEB-t", "x-y-z"])
def test_other_names_are_of_no_preview(segment: str) -> None:
    """Capitals, too: there would be two addresses of one preview."""
    assert path_name(segment) is None
