"""cp: files and folders between this machine and a sandbox."""

from __future__ import annotations

import asyncio
import os
import posixpath
import secrets
import stat
import sys
import threading
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing, closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sandbox_kernel.cli.execute import feed, kill
from sandbox_kernel.cli.exit_codes import FAILED, OK
from sandbox_kernel.cli.naming import existing
from sandbox_kernel.cli.progress import Progress
from sandbox_kernel.cli.report import print_json, size_text, warn
from sandbox_kernel.client.files import FileInfo
from sandbox_kernel.client.process import ProcessOutput
from sandbox_kernel.client.sandbox import Sandbox, get_sandbox
from sandbox_kernel.client.transfer import FolderTransfer, TransferProgress
from sandbox_kernel.engines.disk import storage_errors
from sandbox_kernel.errors import (
    PathNotFoundError,
    SandboxConfigurationError,
    SandboxError,
    StorageError,
)
from sandbox_kernel.manager.manager import Manager

__all__ = ["Place", "copy"]

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Place:
    """One end of a copy."""

    path: str
    sandbox: str | None = None
    """As it was typed; None is this machine."""

    @classmethod
    def parse(cls, text: str) -> Place:
        """Return what ``SANDBOX:PATH``, a path of this machine, or ``-`` names.

        A path of this machine with a colon in it is written with a slash before that.
        """
        sandbox, colon, path = text.partition(":")
        if colon and sandbox and ("/" not in sandbox or sandbox.endswith(".ipynb")):
            return cls(path or ".", sandbox)
        return cls(text)

    @property
    def is_stream(self) -> bool:
        """Whether it is our standard input or output."""
        return self.sandbox is None and self.path == "-"


def copy(arguments: Namespace) -> int:
    """Copy, and tell how much."""
    source, target = Place.parse(arguments.source), Place.parse(arguments.destination)
    if (source.sandbox is None) == (target.sandbox is None):
        raise SandboxConfigurationError(
            "One end must be in a sandbox, and the other on this machine.",
            hint="Write the one in the sandbox as SANDBOX:PATH.",
        )
    if arguments.json and target.is_stream:
        raise SandboxConfigurationError("What is copied goes to standard output, so no --json.")
    return asyncio.run(_copy(arguments, source, target))


async def _copy(arguments: Namespace, source: Place, target: Place) -> int:
    with closing(Manager()) as manager:
        name = existing(manager, source.sandbox or target.sandbox or "").sandbox_id
        async with get_sandbox(name, manager=manager) as sandbox:
            with Progress(quiet=arguments.quiet) as progress:
                work = _Copy(sandbox, progress, follow=arguments.follow_link)
                done = await (
                    work.out(source.path, target)
                    if target.sandbox is None
                    else work.into(source, target.path)
                )
    for skipped in done["skipped"]:
        warn(f"left out: {skipped['path']}: {skipped['reason']}")
    if arguments.json:
        print_json(done)
    elif not target.is_stream and not arguments.quiet and sys.stderr.isatty():
        files = "1 file" if done["files"] == 1 else f"{done['files']} files"
        warn(f"{files}, {size_text(done['bytes'])}")
    return FAILED if done["skipped"] else OK


class _Copy:
    def __init__(self, sandbox: Sandbox, progress: Progress, *, follow: bool) -> None:
        self._sandbox = sandbox
        self._progress = progress
        self._follow = follow

    # --- into the sandbox ---

    async def into(self, source: Place, path: str) -> dict[str, Any]:
        there = await self._at(path)
        is_folder = there is not None and there.type == "directory"
        if path.endswith("/") and not is_folder:
            raise SandboxConfigurationError(f"There is no folder {path!r} in the sandbox.")
        if source.is_stream:
            if is_folder:
                return await self._unpack(path)
            return await self._write(_input(), path, mode=None)
        local = Path(source.path)
        mode = _mode_of(local)
        if stat.S_ISDIR(mode):
            place = path
            if is_folder and not _is_content(source.path):
                place = posixpath.join(path, _name_of(local))
            if there is not None and not is_folder:
                raise SandboxConfigurationError(f"{path!r} in the sandbox is a file, not a folder.")
            done = await self._sandbox.upload_folder(
                local, place, follow_symlinks=self._follow, on_progress=self._told
            )
            return _facts(done)
        if not stat.S_ISREG(mode):
            raise SandboxConfigurationError(f"{source.path!r} is neither a file nor a folder.")
        place = posixpath.join(path, local.name) if is_folder else path
        with _opened(local) as file:
            self._progress.expect(os.fstat(file.fileno()).st_size, local.name)
            return await self._write(_parts(file.fileno()), place, mode=stat.S_IMODE(mode) & 0o777)

    async def _write(
        self, parts: AsyncGenerator[bytes, None], path: str, *, mode: int | None
    ) -> dict[str, Any]:
        async with aclosing(parts):
            info = await self._sandbox.write_file(
                path, parts, mode=mode, on_progress=self._progress.reach
            )
        return _one_file(info.size)

    async def _unpack(self, path: str) -> dict[str, Any]:
        """Have a tar archive of our input unpacked inside, where it can do no harm."""
        process = await self._sandbox.start_process(["tar", "-xf", "-", "-C", path], stdin=True)
        try:
            feed(process, asyncio.get_running_loop())
            said = bytearray()
            async with aclosing(process.output(follow=True)) as events:
                async for event in events:
                    if isinstance(event, ProcessOutput):
                        said += event.data[: 2000 - len(said)]
            _check_tar((await process.wait_for_exit()).exit_code, said)
        except BaseException:
            await kill(process)
            raise
        return {"files": None, "bytes": None, "skipped": []}

    # --- out of the sandbox ---

    async def out(self, path: str, target: Place) -> dict[str, Any]:
        there = await self._sandbox.stat(path)
        is_folder = there.type == "directory"
        if target.is_stream:
            if sys.stdout.isatty():
                raise SandboxConfigurationError(
                    "What a sandbox has in its files is not written to a terminal.",
                    hint="Redirect the output to a file or a program.",
                )
            return await (self._pack(path) if is_folder else self._print(path, there))
        local = Path(target.path)
        if target.path.endswith("/") and not _is_folder(local):
            raise StorageError(target.path, "write", "there is no such folder")
        # As it was typed: what the sandbox calls it need not be believed.
        name = posixpath.basename(posixpath.normpath(path))
        if name in {"", ".", ".."} and not _is_content(path):
            raise SandboxConfigurationError(f"{path!r} has no name of its own.")
        if is_folder:
            place = local / name if _is_folder(local) and not _is_content(path) else local
            done = await self._sandbox.download_folder(
                path, place, overwrite=True, on_progress=self._told
            )
            return _facts(done)
        if there.type != "file":
            raise SandboxConfigurationError(f"{path!r} is neither a file nor a folder.")
        return await self._fetch(path, there, local / name if _is_folder(local) else local)

    async def _fetch(self, path: str, there: FileInfo, local: Path) -> dict[str, Any]:
        """Write one file, which appears when it is whole; no link in its place is followed."""
        self._progress.expect(there.size, there.relative_path)
        size = 0
        with storage_errors(local, "write"), ExitStack() as stack:
            folder = os.open(local.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, folder)
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(os.lstat(local.name, dir_fd=folder).st_mode):
                    raise StorageError(str(local), "write", "what is there is no ordinary file")
            unfinished = f".{secrets.token_hex(8)}.part"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.fdopen(os.open(unfinished, flags, 0o600, dir_fd=folder), "wb")
            try:
                with file:
                    async with aclosing(self._sandbox.read_file_stream(path)) as parts:
                        async for data in parts:
                            file.write(data)
                            size += len(data)
                            self._progress.reach(size)
                    os.fchmod(file.fileno(), there.mode & 0o777)
                os.replace(unfinished, local.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(unfinished, dir_fd=folder)
                raise
        return _one_file(size)

    async def _print(self, path: str, there: FileInfo) -> dict[str, Any]:
        self._progress.expect(there.size, there.relative_path)
        size = 0
        async with aclosing(self._sandbox.read_file_stream(path)) as parts:
            async for data in parts:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
                size += len(data)
                self._progress.reach(size)
        return _one_file(size)

    async def _pack(self, path: str) -> dict[str, Any]:
        words = ["tar", "-cf", "-", "-C"]
        if _is_content(path):
            words += [path, "."]
        else:
            whole = posixpath.normpath(path)
            if whole in {"/", "."} or whole.endswith(".."):
                words += [whole, "."]
            else:
                words += [posixpath.dirname(whole) or ".", "--", posixpath.basename(whole)]
        process = await self._sandbox.start_process(words)
        said, size = bytearray(), 0
        try:
            async with aclosing(process.output(follow=True)) as events:
                async for event in events:
                    if not isinstance(event, ProcessOutput):
                        break
                    if event.stream == "stderr":
                        said += event.data[: 2000 - len(said)]
                        continue
                    sys.stdout.buffer.write(event.data)
                    sys.stdout.buffer.flush()
                    size += len(event.data)
                    self._progress.reach(size)
            _check_tar((await process.wait_for_exit()).exit_code, said)
        except BaseException:
            await kill(process)
            raise
        return {"files": None, "bytes": size, "skipped": []}

    async def _at(self, path: str) -> FileInfo | None:
        try:
            return await self._sandbox.stat(path)
        except PathNotFoundError:
            return None

    def _told(self, progress: TransferProgress) -> None:
        self._progress.reach(progress.bytes, progress.path)


def _mode_of(path: Path) -> int:
    with storage_errors(path, "read"):
        return path.stat().st_mode


def _name_of(path: Path) -> str:
    return path.resolve().name


def _is_folder(path: Path) -> bool:
    return path.is_dir()


def _opened(path: Path) -> BinaryIO:
    with storage_errors(path, "read"):
        return path.open("rb")


def _is_content(path: str) -> bool:
    """Whether a folder's content is meant, and not the folder, as cp has it."""
    return path == "." or path.endswith(("/.", "/./"))


def _check_tar(code: int, said: bytearray) -> None:
    if code:
        told = said.decode(errors="replace").strip()
        raise SandboxError(f"tar in the sandbox ended with {code}: {told}")


async def _parts(number: int) -> AsyncGenerator[bytes, None]:
    while data := await asyncio.to_thread(os.read, number, _CHUNK):
        yield data


async def _input() -> AsyncGenerator[bytes, None]:
    """Read our input; whoever ends meanwhile need not wait for it."""
    loop = asyncio.get_running_loop()

    def read(came: asyncio.Future[bytes]) -> None:
        def tell(data: bytes, error: OSError | None) -> None:
            if came.done():
                return
            if error is not None:
                came.set_exception(error)
            else:
                came.set_result(data)

        data, error = b"", None
        try:
            data = os.read(0, _CHUNK)
        except OSError as failure:
            error = failure
        with suppress(RuntimeError):  # the loop has gone
            loop.call_soon_threadsafe(tell, data, error)

    while True:
        came: asyncio.Future[bytes] = loop.create_future()
        # A daemon, unlike the threads of the loop: our input may never end.
        threading.Thread(target=read, args=(came,), name="stdin", daemon=True).start()
        data = await came
        if not data:
            return
        yield data


def _one_file(size: int) -> dict[str, Any]:
    return {"files": 1, "bytes": size, "skipped": []}


def _facts(done: FolderTransfer) -> dict[str, Any]:
    return {
        "files": done.files,
        "bytes": done.bytes,
        "skipped": [asdict(each) for each in done.skipped],
    }
