"""Cloning: a real git, by file and by HTTP, with what can go wrong; secrets stay secret."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.errors import (
    CommandNotFoundError,
    CommandTimeoutError,
    GitAuthenticationError,
    GitBranchNotFoundError,
    GitCheckoutError,
    GitCloneError,
    GitNetworkError,
    GitRepositoryNotFoundError,
    InvalidGitUrlError,
    OperationInterruptedError,
    PathExistsError,
    SandboxError,
    ValidationFailedError,
)
from sandbox_runtime.git_words import (
    check_branch,
    error_of,
    progress_of,
    read_address,
    redacted,
)
from tests.runtime.conftest import Start
from tests.support.runtime_child import DEADLINE, Client, RuntimeChild

SECRET = "s3cr3t/t*ken"


def git(folder: Path, *words: str) -> str:
    environment = {
        **os.environ,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        **{
            f"GIT_{who}_{what}": "x@y"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }
    done = subprocess.run(
        ["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two branches, a tag and three commits, as a server has it."""
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-b", "main")
    for number in range(3):
        (source / "f").write_text(f"{number}\n")
        git(source, "add", "f")
        git(source, "commit", "-m", f"change {number}")
    git(source, "tag", "v1")
    git(source, "checkout", "-b", "other")
    (source / "g").write_text("other\n")
    git(source, "add", "g")
    git(source, "commit", "-m", "other")
    git(source, "checkout", "main")
    served = tmp_path / "served"
    served.mkdir()
    git(tmp_path, "clone", "--bare", str(source), str(served / "project.git"))
    git(served / "project.git", "update-server-info")
    return served / "project.git"


class Served(SimpleHTTPRequestHandler):
    """A repository over HTTP, as plain files; below /private/ for one user only."""

    asked: list[str | None] = []  # noqa: RUF012  what was sent to be admitted

    def do_GET(self) -> None:
        given = self.headers.get("Authorization")
        self.asked.append(given)
        if self.path.startswith("/private/"):
            wanted = base64.b64encode(f"us:er:{SECRET}".encode()).decode()
            if given != f"Basic {wanted}":
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="x"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.path = self.path.removeprefix("/private")
        if self.path.startswith("/slow/"):
            time.sleep(20)
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def address(repository: Path) -> Iterator[str]:
    Served.asked.clear()
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Served, directory=str(repository.parent))
    )
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def runtime(start_runtime: Start, tmp_path: Path) -> RuntimeChild:
    home = tmp_path / "home"
    home.mkdir()
    return start_runtime(env={"PATH": os.environ["PATH"], "HOME": str(home)})


def clone(client: Client, url: str, **fields: Any) -> Any:
    return client.call("git.checkout", url=url, **fields)[1]


def test_by_file(client: Client, runtime: RuntimeChild, repository: Path) -> None:
    """The default branch, into a folder of the repository's name."""
    items, end = client.call("git.checkout", url=f"file://{repository}")

    assert end.path == str(runtime.workspace / "project")
    assert (end.branch, end.commit) == ("main", git(repository, "rev-parse", "main"))
    assert (runtime.workspace / "project" / "f").read_text() == "2\n"
    assert os.listdir(runtime.workspace) == ["project"]
    assert git(runtime.workspace / "project", "status", "--porcelain") == ""
    assert any(each.percent == 100 and each.total for each in items)


def test_a_branch_a_tag_and_a_depth(
    client: Client, runtime: RuntimeChild, repository: Path
) -> None:
    """Where they are asked for; an empty folder is filled, also through a link."""
    url = f"file://{repository}"
    end = clone(client, url, branch="other", target_dir="a/b", depth=1)
    assert (end.branch, end.path) == ("other", str(runtime.workspace / "a" / "b"))
    assert git(runtime.workspace / "a" / "b", "rev-list", "--count", "HEAD") == "1"
    end = clone(client, url, branch="v1", target_dir="tag")
    assert (end.branch, end.commit) == (None, git(repository, "rev-parse", "v1"))
    (runtime.workspace / "empty").mkdir()
    os.symlink("empty", runtime.workspace / "link")
    clone(client, url, target_dir="link")
    assert (runtime.workspace / "empty" / "f").exists()
    with pytest.raises(PathExistsError):
        clone(client, url, target_dir="tag")


def test_an_empty_repository(client: Client, runtime: RuntimeChild, tmp_path: Path) -> None:
    """It has a branch and no commit."""
    git(tmp_path, "init", "--bare", "-b", "trunk", "empty.git")
    end = clone(client, f"file://{tmp_path / 'empty.git'}")
    assert (end.branch, end.commit) == ("trunk", None)


def test_by_http(client: Client, runtime: RuntimeChild, address: str) -> None:
    """Without credentials none are sent."""
    end = clone(client, f"http://{address}/project.git")
    assert end.branch == "main"
    assert set(Served.asked) == {None}


@pytest.mark.parametrize("way", ["address", "fields"])
def test_credentials(client: Client, runtime: RuntimeChild, address: str, way: str) -> None:
    """They reach the server, and no argument and no file; colons and slashes in them are fine."""
    fields: dict[str, Any] = {"target_dir": "clone"}
    url = f"http://{address}/private/project.git"
    if way == "address":
        url = url.replace("//", "//us%3Aer:s3cr3t%2Ft%2Aken@")
    else:
        fields |= {"username": "us:er", "password": SECRET}
    call = client.begin("git.checkout", url=url, **fields)
    arguments = set()
    deadline = time.monotonic() + DEADLINE
    while (event := client.event_within(call, 0.002)) is None or not hasattr(event, "value"):
        arguments |= set(commands_of(runtime.pid))
        assert time.monotonic() < deadline
    if "path" not in event.value:
        client.finish(call)

    for words in arguments:
        assert "s3cr3t" not in words
    for folder, _, files in os.walk(runtime.workspace):
        for name in files:
            assert b"s3cr3t" not in (Path(folder) / name).read_bytes()
    assert "s3cr3t" not in runtime.log()
    assert git(runtime.workspace / "clone", "remote", "get-url", "origin") == (
        f"http://{address}/private/project.git"
    )


def commands_of(pid: int) -> Iterator[str]:
    """Yield the command lines of all descendants."""
    found = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in found.stdout.splitlines()]
    family = {str(pid)}
    for _ in range(6):
        family |= {row[0] for row in rows if row[1] in family}
    for row in rows:
        if row[0] in family and len(row) > 2:
            yield row[2]


def test_wrong_credentials(client: Client, runtime: RuntimeChild, address: str) -> None:
    """A typed error without them; nothing is left."""
    for url in (
        f"http://{address}/private/project.git",
        f"http://name:s3cr3t%2Fx@{address}/private/project.git",
    ):
        with pytest.raises(GitAuthenticationError) as refused:
            clone(client, url)
        told = str(refused.value.to_wire())
        assert "s3cr3t" not in told
        assert "name" not in told.replace("username", "")
    assert os.listdir(runtime.workspace) == []


def test_credentials_are_for_one_host(client: Client, address: str, tmp_path: Path) -> None:
    """A server that sends git elsewhere does not have them sent along."""

    class Elsewhere(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"http://{address}/private{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(GitAuthenticationError):
            clone(
                client,
                f"http://127.0.0.1:{server.server_port}/project.git",
                username="us:er",
                password=SECRET,
            )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    for given in Served.asked:
        assert given is None or SECRET not in base64.b64decode(given.split()[1]).decode()


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("file:///no/such/repository", GitRepositoryNotFoundError),
        ("http://ADDRESS/missing.git", GitRepositoryNotFoundError),
        ("http://127.0.0.1:1/x.git", GitNetworkError),
        ("git://127.0.0.1:1/x.git", GitNetworkError),
        ("http://no-such-host.invalid/x.git", GitNetworkError),
    ],
)
def test_where_nothing_is(
    client: Client, runtime: RuntimeChild, address: str, url: str, kind: type[SandboxError]
) -> None:
    """No repository, or no host."""
    with pytest.raises(kind):
        clone(client, url.replace("ADDRESS", address))
    assert os.listdir(runtime.workspace) == []


def test_no_such_branch(client: Client, runtime: RuntimeChild, repository: Path) -> None:
    """It is said so, and nothing is left."""
    with pytest.raises(GitBranchNotFoundError):
        clone(client, f"file://{repository}", branch="none")
    assert os.listdir(runtime.workspace) == []


def test_a_repository_that_cannot_be_checked_out(
    client: Client, runtime: RuntimeChild, tmp_path: Path
) -> None:
    """Its objects come, its files do not."""
    source = tmp_path / "odd"
    source.mkdir()
    git(source, "init", "-b", "main")
    (source / "f").write_text("content\n")
    blob = git(source, "hash-object", "-w", "f")
    git(source, "update-index", "--add", "--cacheinfo", f"100644,{blob},{'n' * 300}")
    git(source, "commit", "-m", "x")
    with pytest.raises(GitCheckoutError) as refused:
        clone(client, f"file://{source}")
    assert "too long" in str(refused.value).lower() or "checkout" in str(refused.value)
    assert os.listdir(runtime.workspace) == []


def test_a_repository_that_lacks_objects(
    client: Client, runtime: RuntimeChild, repository: Path
) -> None:
    """It is a failed clone, not a network's failure."""
    for path in (repository / "objects" / "pack").iterdir():
        path.unlink()
    for folder in (repository / "objects").glob("??"):
        for path in folder.iterdir():
            path.unlink()
    with pytest.raises((GitCloneError, GitRepositoryNotFoundError)):
        clone(client, f"file://{repository}")
    assert os.listdir(runtime.workspace) == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "--upload-pack=touch /tmp/x",
        "-x",
        "ext::sh -c touch% x",
        "ext::sh",
        "fd::17",
        "testing::ext://x/y",
        "ssh://-oProxyCommand=x/y",
        "ssh://-ox@host/y",
        "-ox@host:y",
        "host -x:y",
        "ftp://host/x",
        "https://",
        "https:///x",
        "https://host",
        "relative/path",
        "x\ny",
        "http://host/\0",
    ],
)
def test_addresses_that_are_none(client: Client, url: str) -> None:
    """Options, commands and other tricks are refused before git is started."""
    with pytest.raises(InvalidGitUrlError):
        clone(client, url)


@pytest.mark.parametrize(
    "branch", ["", "-x", "--upload-pack=x", "a b", "a..b", "a~1", "a\nb", "/a"]
)
def test_branches_that_are_none(branch: str) -> None:
    """Likewise."""
    with pytest.raises(ValidationFailedError):
        check_branch(branch)


def test_links_and_options_in_a_repository_run_nothing(
    client: Client, runtime: RuntimeChild, repository: Path
) -> None:
    """The target's name is no option either."""
    end = clone(client, f"file://{repository}", target_dir="--template=x")
    assert end.path == str(runtime.workspace / "--template=x")


def test_a_time_limit(client: Client, runtime: RuntimeChild, address: str) -> None:
    """git and its helpers are gone, and what they had begun."""
    with pytest.raises(CommandTimeoutError):
        clone(client, f"http://{address}/slow/project.git", timeout=0.5)
    assert os.listdir(runtime.workspace) == []
    deadline = time.monotonic() + DEADLINE
    while any("git" in each for each in commands_of(runtime.pid)):
        assert time.monotonic() < deadline


def test_a_clone_that_is_cancelled(client: Client, runtime: RuntimeChild, address: str) -> None:
    """Likewise; it holds the sandbox awake until then."""
    call = client.begin("git.checkout", url=f"http://{address}/slow/project.git")
    deadline = time.monotonic() + DEADLINE
    while not any("remote-http" in each for each in commands_of(runtime.pid)):
        assert time.monotonic() < deadline
    assert client.call("runtime.health").busy == ["git.checkout"]
    client.send(client.protocol.cancel(call))
    with pytest.raises(OperationInterruptedError):
        client.finish(call)
    assert os.listdir(runtime.workspace) == []
    assert client.call("runtime.health").busy == []


def test_no_git(start_runtime: Start, tmp_path: Path) -> None:
    """It is said so."""
    runtime = start_runtime(env={"PATH": str(tmp_path)})
    with runtime.connect() as client:
        client.welcome()
        with pytest.raises(CommandNotFoundError):
            clone(client, "file:///x/y")


# --- words ------------------------------------------------------------------------------------


def test_what_git_says_of_its_progress() -> None:
    """Its own and the server's lines; others say nothing."""
    told = progress_of("Receiving objects:  45% (450/1000), 1.2 MiB | 3 MiB/s")
    assert told is not None
    assert (told.phase, told.percent, told.done, told.total) == ("Receiving objects", 45, 450, 1000)
    told = progress_of("remote: Counting objects: 100% (9/9), done.")
    assert told is not None
    assert told.phase == "Counting objects"
    for line in ("", "Cloning into 'x'...", "fatal: 50% of it: no", "x: y%"):
        assert progress_of(line) is None


def test_secrets_are_taken_out() -> None:
    """As they are, as they are in addresses, and whoever else stands in one."""
    text = "at https://me:p%2Fw@host/x and p/w, https://tok@host/y: user@host"
    assert redacted(text, ("p/w", None)) == "at https://host/x and ***, https://host/y: user@host"


def test_addresses() -> None:
    """Their parts, with what is secret apart."""
    each = read_address("HTTPS://us%40er:pa%3Ass@host:8/a/b.git")
    assert (each.url, each.origin, each.name) == ("https://host:8/a/b.git", "https://host:8", "b")
    assert (each.username, each.password) == ("us@er", "pa:ss")
    each = read_address("git@host:a/b")
    assert (each.url, each.origin, each.name) == ("git@host:a/b", "", "b")
    assert read_address("ssh://git@host/a/.git").url == "ssh://git@host/a/.git"
    for url in ("https://host/..", "https://host/%2e%2e", "https://host/a%2fb/.git"):
        assert "/" not in read_address(url).name
        assert read_address(url).name not in ("", ".", "..")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("fatal: Remote branch x not found in upstream origin", "GIT_BRANCH_NOT_FOUND"),
        ("git@host: Permission denied (publickey).\nfatal: Could not read from remote repository.",
         "GIT_AUTH_FAILED"),
        ("fatal: could not read Username for 'https://h': terminal prompts disabled",
         "GIT_AUTH_FAILED"),
        ("fatal: repository 'https://h/x/' not found", "GIT_REPOSITORY_NOT_FOUND"),
        ("fatal: unable to access 'https://h/': Could not resolve host: h", "GIT_NETWORK_ERROR"),
        ("fatal: unable to access 'https://h/': The requested URL returned error: 500",
         "GIT_NETWORK_ERROR"),
        ("warning: Clone succeeded, but checkout failed.\nyou can ...", "GIT_CHECKOUT_FAILED"),
        ("fatal: something new", "GIT_CLONE_FAILED"),
        ("", "GIT_CLONE_FAILED"),
    ],
)  # fmt: skip
def test_which_error_it_was(said: str, code: str) -> None:
    """By what git says in English, which it is made to speak."""
    assert error_of("https://h/x", said).code == code
