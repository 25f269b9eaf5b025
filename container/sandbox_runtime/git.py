"""Cloning repositories: git runs as a child, into a draft that is put in its place at the end.

Credentials go to git through its environment and a helper that answers for one host only, so they
are in no argument, file or message.
"""

from __future__ import annotations

import errno
import os
import time

from sandbox_kernel.errors import (
    CommandTimeoutError,
    NoSpaceError,
    OperationInterruptedError,
    SandboxError,
    ValidationFailedError,
)
from sandbox_kernel.wire.git_operations import GitCheckoutResult, GitProgress
from sandbox_runtime.file_access import make_folder
from sandbox_runtime.git_words import (
    Address,
    check_branch,
    error_of,
    progress_of,
    read_address,
    redacted,
)
from sandbox_runtime.loop import READ
from sandbox_runtime.spawn import spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox_kernel.wire.git_operations import GitCheckoutRequest
    from sandbox_runtime.children import Children
    from sandbox_runtime.config import Config
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.files import Files
    from sandbox_runtime.loop import Loop, Timer

__all__ = ["Checkouts"]

MOST_AT_ONCE = 16
KILL_GRACE = 2.0

_KEPT = 8192
_READ = 64 << 10
_TOLD_EVERY = 0.1
_LONGEST_TIMEOUT = 86400.0
_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n"'
    ' "$SANDBOX_GIT_USERNAME" "$SANDBOX_GIT_PASSWORD"; }; f'
)


class Checkouts:
    """The clones of one runtime that are under way."""

    def __init__(self, loop: Loop, config: Config, children: Children, files: Files) -> None:
        self.loop = loop
        self.config = config
        self.children = children
        self.files = files
        self.count = 0

    def checkout(self, request: GitCheckoutRequest, exchange: Exchange) -> None:
        """Clone a repository."""
        address = read_address(request.url)
        check_branch(request.branch)
        if request.depth is not None and not 0 < request.depth < 2**31:
            raise ValidationFailedError("depth", "must be above zero")
        if request.timeout is not None and not 0 < request.timeout <= _LONGEST_TIMEOUT:
            raise ValidationFailedError("timeout", f"must be above 0, {_LONGEST_TIMEOUT:g} at most")
        if request.username is not None:
            address.username = request.username
        if request.password is not None:
            address.password = request.password
        for secret in (address.username, address.password):
            if secret is not None and any(each in secret for each in "\0\r\n"):
                raise ValidationFailedError("password", "or username holds a line end")
        if self.count >= MOST_AT_ONCE:
            raise ValidationFailedError("url", f"is one more than {MOST_AT_ONCE} at once")
        target = os.path.join(request.folder or "", request.target_dir or address.name)
        target = self.files.absolute(target)
        _Checkout(self, address, request, target, exchange)


class _Checkout:
    """One clone."""

    def __init__(
        self,
        owner: Checkouts,
        address: Address,
        request: GitCheckoutRequest,
        target: str,
        exchange: Exchange,
    ) -> None:
        self._owner = owner
        self._address = address
        self._request = request
        self._target = target
        self._exchange = exchange
        self._draft = ""
        self._pid = 0
        self._fd = -1
        self._said = b""
        self._line = b""
        self._phase = ""
        self._next = 0.0
        self._problem: SandboxError | None = None
        self._timer: Timer | None = None
        exchange.on_cancel = self._cancel
        owner.count += 1
        owner.files.activity.hold("git.checkout")
        owner.files.workers.submit(self._prepare, self._prepared)

    # --- before: in a thread ---

    def _prepare(self) -> None:
        # A link to an empty folder is filled, as git itself would.
        self._target = target = os.path.realpath(self._target)
        folder = os.path.dirname(target)
        make_folder(folder, parents=True)
        try:
            if os.listdir(target):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        except FileNotFoundError:
            pass
        except NotADirectoryError:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
        self._draft = self._owner.files.drafts.begin(folder)

    def _prepared(self, _result: object, error: BaseException | None) -> None:
        if error is None and self._problem is None:
            try:
                self._start()
            except (SandboxError, OSError) as problem:
                error = problem
        if error is not None or self._problem is not None:
            self._finish(error or self._problem)

    # --- git itself ---

    def _start(self) -> None:
        request, address = self._request, self._address
        argv = ["git", "-c", "credential.helper="]
        env = {
            **self._owner.config.env,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
            "LC_ALL": "C",
        }
        env.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
        if address.origin and address.password is not None:
            argv += ["-c", f"credential.{address.origin}.helper={_HELPER}"]
            env["SANDBOX_GIT_USERNAME"] = address.username or "git"
            env["SANDBOX_GIT_PASSWORD"] = address.password
        argv += ["clone", "--progress"]
        if request.branch is not None:
            argv.append(f"--branch={request.branch}")
        if request.depth is not None:
            argv.append(f"--depth={request.depth}")
        argv += ["--", address.url, self._draft]
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._fd, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._fd, False)
        try:
            self._pid = spawn(
                argv, cwd=os.path.dirname(self._target), env=env, stdio=(null, null, write)
            )
        except BaseException:
            os.close(self._fd)
            self._fd = -1
            raise
        finally:
            os.close(null)
            os.close(write)
        self._owner.loop.add(self._fd, READ, self._ready)
        self._owner.children.watch(self._pid, self._exited)
        if request.timeout is not None:
            self._timer = self._owner.loop.call_later(request.timeout, self._too_late)

    def _ready(self, _events: int) -> None:
        if not self._read():
            self._owner.loop.remove_if_added(self._fd)

    def _read(self) -> bool:
        """Read once; False at the end."""
        try:
            data = os.read(self._fd, _READ)
        except BlockingIOError:
            return True
        if not data:
            return False
        self._said = (self._said + data)[-_KEPT:]
        *lines, self._line = (self._line + data).replace(b"\r", b"\n").split(b"\n")
        self._line = self._line[-_KEPT:]
        for line in lines:
            self._tell(progress_of(line.decode("utf-8", "replace")))
        return True

    def _tell(self, progress: GitProgress | None) -> None:
        if progress is None or not self._exchange.writable:
            return
        now = time.monotonic()
        if now < self._next and progress.phase == self._phase and progress.percent != 100:
            return
        self._next, self._phase = now + _TOLD_EVERY, progress.phase
        self._exchange.item(progress)

    def _exited(self, status: int) -> None:
        # What its helpers write later is of no interest; what it wrote last is.
        self._owner.loop.remove_if_added(self._fd)
        for _ in range(4):
            if not self._read():
                break
        os.close(self._fd)
        self._fd = -1
        if self._timer is not None:
            self._timer.cancel()
        self._owner.children.check_group(self._pid)
        if self._problem is None and os.waitstatus_to_exitcode(status) == 0:
            self._owner.files.workers.submit(self._place, self._placed)
        else:
            self._finish(self._problem or self._explained())

    def _explained(self) -> SandboxError:
        address = self._address
        said = redacted(
            self._said.decode("utf-8", "replace"), (address.password, address.username)
        ).replace(self._draft, self._target)
        if "No space left on device" in said:
            return NoSpaceError(self._target, "clone into", "no space left on device")
        return error_of(address.url, said)

    def _too_late(self) -> None:
        self._end(CommandTimeoutError("git clone", self._request.timeout or 0.0))

    def _cancel(self) -> None:
        self._end(OperationInterruptedError("git.checkout", "it was cancelled"))

    def _end(self, problem: SandboxError) -> None:
        if self._problem is None:
            self._problem = problem
            if self._pid and self._fd >= 0:
                self._owner.children.end_group(self._pid, KILL_GRACE)

    # --- after: in a thread ---

    def _place(self) -> GitCheckoutResult:
        branch, commit = _head(self._draft)
        os.rename(self._draft, self._target)
        return GitCheckoutResult(path=self._target, branch=branch, commit=commit)

    def _placed(self, result: object, error: BaseException | None) -> None:
        if error is not None:
            self._finish(error)
            return
        self._owner.files.drafts.end(self._draft)
        self._let_go()
        self._exchange.end(result)  # type: ignore[arg-type]

    def _finish(self, error: BaseException | None) -> None:
        """Remove what there is of it, then tell."""
        assert error is not None  # noqa: S101  there is a reason
        failure = error

        def work() -> None:
            if self._draft:
                self._owner.files.drafts.drop(self._draft)

        def done(_result: object, _error: BaseException | None) -> None:
            self._let_go()
            self._owner.files.jobs.fail(self._exchange, failure, self._target, "clone into")

        self._owner.files.workers.submit(work, done)

    def _let_go(self) -> None:
        self._owner.count -= 1
        self._owner.files.activity.let_go("git.checkout", time.monotonic())


def _head(folder: str) -> tuple[str | None, str | None]:
    """Return the branch and the commit of a fresh clone."""
    git = os.path.join(folder, ".git")
    head = _first_line(os.path.join(git, "HEAD"))
    if head is None or not head.startswith("ref: "):
        return None, head
    ref = head.removeprefix("ref: ")
    commit = _first_line(os.path.join(git, ref))
    if commit is None:
        try:
            with open(os.path.join(git, "packed-refs"), encoding="utf-8", errors="replace") as file:
                for line in file:
                    if line.rstrip("\n").endswith(f" {ref}"):
                        commit = line.split(" ")[0]
        except FileNotFoundError:
            pass
    return ref.removeprefix("refs/heads/"), commit


def _first_line(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline(4096).strip() or None
    except OSError:
        return None
