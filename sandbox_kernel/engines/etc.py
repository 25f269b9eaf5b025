"""The sandbox's /etc: a few small files made for it, instead of the host's."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping

from sandbox_kernel.engines.recipe import GID, HOME, UID

__all__ = ["etc_files", "etc_links", "etc_mounts", "public_pip_settings", "without_credentials"]

_COPIED = (
    *("/etc/ld.so.cache", "/etc/services", "/etc/protocols", "/etc/inputrc"),
    "/etc/localtime",  # where it is no link, see `etc_links`
)
_COPIED_WITH_NETWORK = ("/etc/resolv.conf", "/etc/gai.conf")
# Certificates only: beside them lie private keys.
_CERTIFICATES = (
    *("/etc/ssl/certs", "/etc/ca-certificates"),
    *("/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted"),
)
# Without certificates pip of a distribution fails before it finds that there is no network.
_SHOWN = ("/etc/alternatives", "/etc/fonts", *_CERTIFICATES)
_SHOWN_WITH_NETWORK = ("/etc/ssl/openssl.cnf",)
_LARGEST = 1 << 20
_PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "timeout", "retries")


def etc_files(
    hostname: str, *, network: bool, shell: str, read: Callable[[str], bytes | None]
) -> dict[str, bytes]:
    """Return the files by path.

    Parameters
    ----------
    hostname : str
        The sandbox's own name.
    network : bool
        Whether to add what names and certificates of the network need.
    shell : str
        The user's login shell.
    read : callable
        Returns the content of a host file, or None where there is none.
    """
    files = {
        "/etc/passwd": (
            f"root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
            f"user:x:{UID}:{GID}:user:{HOME}:{shell}\n"
            "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        ).encode(),
        "/etc/group": f"root:x:0:\nuser:x:{GID}:\nnogroup:x:65534:\n".encode(),
        "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
        "/etc/bash.bashrc": b"[ -z \"$PS1\" ] || PS1='\\u@\\h:\\w\\$ '\n",
        "/etc/hosts": _hosts(hostname, (read("/etc/hosts") if network else None) or b""),
    }
    for path in (*_COPIED, *(_COPIED_WITH_NETWORK if network else ())):
        content = read(path)
        if content is not None and len(content) <= _LARGEST:
            files[path] = content
    if network:
        pip = public_pip_settings((read("/etc/pip.conf") or b"").decode("utf-8", "replace"))
        if pip:
            files["/etc/pip.conf"] = pip.encode()
    return files


def _hosts(hostname: str, host: bytes) -> bytes:
    return f"127.0.0.1 localhost\n::1 localhost\n127.0.0.1 {hostname}\n".encode() + host


def etc_links(readlink: Callable[[str], str | None]) -> dict[str, str]:
    """Return the symbolic links by name.

    Parameters
    ----------
    readlink : callable
        Returns where a link of the host points, or None where there is none.
    """
    links = {"/etc/mtab": "/proc/self/mounts", "/etc/os-release": "../usr/lib/os-release"}
    zone = readlink("/etc/localtime")
    if zone is not None and "zoneinfo/" in zone:
        links["/etc/localtime"] = "/usr/share/zoneinfo/" + zone.rpartition("zoneinfo/")[2]
    return links


def etc_mounts(*, network: bool, exists: Callable[[str], bool]) -> list[str]:
    """Return the host's folders of /etc that are shown as they are."""
    candidates = (*_SHOWN, *(_SHOWN_WITH_NETWORK if network else ()))
    return [each for each in candidates if exists(each)]


def without_credentials(url: str) -> bool:
    """Whether a URL names no user or password."""
    return not any("@" in each.partition("/")[0] for each in url.split("//")[1:])


def public_pip_settings(text: str) -> str:
    """Return a pip configuration reduced to where packages come from, log-ins left out."""
    import configparser  # noqa: PLC0415 - slow to import, and needed with the network only

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error:
        return ""
    public = configparser.RawConfigParser()
    for section in ("global", "install"):
        if not parser.has_section(section):
            continue
        settings = {
            name: value
            for name, value in parser.items(section)
            if name in _PIP_SETTINGS and without_credentials(value)
        }
        if settings:
            public[section] = settings
    result = io.StringIO()
    public.write(result)
    return result.getvalue()


def network_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the host's variables that say how to reach the network, log-ins left out."""
    names = (
        *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST"),
    )
    variables = (
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"),
        "NODE_EXTRA_CA_CERTS",
    )
    found = {
        name: environ[name] for name in names if without_credentials(environ.get(name, "@//@"))
    }
    for name in variables:
        path = environ.get(name, "")
        if path.startswith(("/usr/", *(f"{each}/" for each in _CERTIFICATES))) or (
            path in _CERTIFICATES
        ):
            found[name] = path
    return found
