"""What git is told and what it says: addresses, progress, and which error it was; no I/O."""

from __future__ import annotations

from urllib.parse import quote, unquote

from sandbox_kernel.errors import (
    GitAuthenticationError,
    GitBranchNotFoundError,
    GitCheckoutError,
    GitCloneError,
    GitError,
    GitNetworkError,
    GitRepositoryNotFoundError,
    InvalidGitUrlError,
    ValidationFailedError,
)
from sandbox_kernel.wire.git_operations import GitProgress

__all__ = ["Address", "check_branch", "error_of", "progress_of", "read_address", "redacted"]

_SCHEMES = ("https", "http", "ssh", "git", "file")
_SHOWN = 2000
_SEEN_INSIDE = (
    "An address of a file is seen from inside the sandbox: bring the repository in with "
    "upload_folder(), or show its folder by the option notebook_folder."
)
_COMPLAINTS = ("fatal", "error", "warning")


class Address:
    """A repository's address without what is secret in it.

    Attributes
    ----------
    url : str
        What git is given.
    origin : str
        Scheme and host, to which alone the credentials go; empty where they go nowhere.
    name : str
        The repository's name, to call a folder by.
    username, password : str or None
        What stood in the address.
    """

    def __init__(
        self, url: str, origin: str, name: str, username: str | None, password: str | None
    ) -> None:
        self.url = url
        self.origin = origin
        self.name = name
        self.username = username
        self.password = password


def read_address(url: str) -> Address:
    """Take an address apart.

    Raises
    ------
    InvalidGitUrlError
        It is none, or git would take it for an option or for a command to run.
    """
    shown = redacted(url[:300], ())
    if not url or len(url) > 4096 or any(ord(each) <= 32 or ord(each) == 127 for each in url):
        raise InvalidGitUrlError(shown, "it is empty, too long, or holds spaces")
    if url.startswith("-") or "::" in url.partition("://")[0]:
        raise InvalidGitUrlError(shown, "git would take it for something else")
    scheme, separator, rest = url.partition("://")
    if not separator:
        return _secure_copy(url, shown)
    scheme = scheme.lower()
    if scheme not in _SCHEMES:
        raise InvalidGitUrlError(shown, f"{scheme[:20]!r} is no kind of address git clones from")
    host, slash, path = rest.partition("/")
    user, at, host = host.rpartition("@")
    if (not host and scheme != "file") or host.startswith("-") or not path:
        raise InvalidGitUrlError(shown, "it lacks a host or a path")
    username = password = None
    if at and scheme in ("http", "https"):
        name, colon, secret = user.partition(":")
        username = unquote(name) or None
        password = unquote(secret) if colon else None
        at = user = ""
    elif at and (user.startswith("-") or ":" in user):
        raise InvalidGitUrlError(shown, "its user is none")
    return Address(
        url=f"{scheme}://{user}{at}{host}{slash}{path}",
        origin=f"{scheme}://{host}" if scheme in ("http", "https") else "",
        name=_name(path),
        username=username,
        password=password,
    )


def _secure_copy(url: str, shown: str) -> Address:
    if url.startswith("/"):
        # A path in the sandbox, as git itself takes it.
        return Address(
            url=f"file://{url}", origin="", name=_name(url), username=None, password=None
        )
    host, colon, path = url.partition(":")
    if not colon or not host or not path or "/" in host or host.rpartition("@")[2][:1] in ("", "-"):
        raise InvalidGitUrlError(shown, "it is no address")
    return Address(url=url, origin="", name=_name(path), username=None, password=None)


def _name(path: str) -> str:
    name = unquote(
        path.split("?", maxsplit=1)[0].split("#", maxsplit=1)[0].rstrip("/").rpartition("/")[2]
    )
    name = name.removesuffix(".git").replace("/", "_").replace("\0", "_")
    return "repository" if name in ("", ".", "..") else name


def check_branch(branch: str | None) -> None:
    """Refuse what is no name of a branch or tag."""
    if branch is None:
        return
    wrong = any(ord(each) <= 32 or ord(each) == 127 or each in "~^:?*[\\" for each in branch)
    if wrong or not branch or branch.startswith(("-", "/")) or ".." in branch or "@{" in branch:
        raise ValidationFailedError("branch", "is no name of a branch or tag")


def redacted(text: str, secrets: tuple[str | None, ...]) -> str:
    """Take what is secret out of a text: the given words, and users in addresses."""
    for secret in secrets:
        for word in {secret, quote(secret, safe="")} if secret else ():
            text = text.replace(word, "***")
    parts = text.split("://")
    for number in range(1, len(parts)):
        user, at, host = parts[number].partition("@")
        if at and not any(each in user for each in "/ \n'\""):
            parts[number] = host
    return "://".join(parts)


def progress_of(line: str) -> GitProgress | None:
    """Return what a line of git's says of its progress, if it does."""
    phase, colon, rest = line.strip().removeprefix("remote: ").partition(": ")
    share, percent, rest = rest.partition("%")
    if not colon or not percent or not share.strip().isdigit() or phase in _COMPLAINTS:
        return None
    done, slash, total = rest.partition("(")[2].partition(")")[0].partition("/")
    counted = bool(slash) and done.isdigit() and total.isdigit()
    return GitProgress(
        phase=phase,
        percent=min(100, int(share)),
        done=int(done) if counted else None,
        total=int(total) if counted else None,
    )


# The first that is in what git said, in small letters, names the error.
_SIGNS: tuple[tuple[type[GitError], tuple[str, ...]], ...] = (
    (GitBranchNotFoundError, ("remote branch", "couldn't find remote ref")),
    (GitCheckoutError, ("clone succeeded, but checkout failed", "unable to checkout")),
    (
        GitAuthenticationError,
        (
            "authentication failed",
            "could not read username",
            "could not read password",
            "terminal prompts disabled",
            "permission denied (",
            "returned error: 401",
            "returned error: 403",
            "host key verification failed",
        ),
    ),
    (
        GitRepositoryNotFoundError,
        (
            "not found",
            "does not appear to be a git repository",
            "does not exist",
            "returned error: 404",
            "no such file or directory",
            "repository not exported",
        ),
    ),
    (
        GitNetworkError,
        (
            "could not resolve",
            "unable to look up",
            "failed to connect",
            "couldn't connect",
            "unable to connect",
            "connection refused",
            "connection reset",
            "timed out",
            "unreachable",
            "early eof",
            "hung up",
            "unable to access",
            "could not read from remote",
        ),
    ),
)


def error_of(url: str, said: str) -> GitError:
    """Return the error for a clone that failed; `said` is what git wrote, without secrets."""
    lines = [line.strip() for line in said.replace("\r", "\n").split("\n")]
    lines = [line for line in lines if line and progress_of(line) is None]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
    # Of a file the first says more: what follows speaks of a host that does not answer.
    chosen = fatal[:1] if url.startswith("file:") else fatal[-1:]
    reason = chosen[0].partition(":")[2].strip() if chosen else "\n".join(lines[-3:])
    # It becomes a part of a sentence that has its own end.
    reason = reason.rstrip(".") or "git failed"
    low = "\n".join(lines).lower()
    for kind, signs in _SIGNS:
        # There is no network on the way to a file, though git speaks of hang-ups.
        is_out = kind is GitNetworkError and url.startswith("file:")
        if not is_out and any(sign in low for sign in signs):
            is_inside = kind is GitRepositoryNotFoundError and url.startswith("file:")
            return kind(url, reason, hint=_SEEN_INSIDE if is_inside else None)
    return GitCloneError(url, reason)
