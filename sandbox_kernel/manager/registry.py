"""The list of sandboxes on disk: one SQLite file that any process of the user may use.

The file is mode 0600, since it holds the tokens of running sandboxes.  It uses a write-ahead log,
so readers and a writer do not wait for each other.  Every error of the database leaves here as a
`StorageError` or `StorageFullError` that names the file and the mend.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from sandbox_kernel.engines.base import FolderMode, Instance, Limits, SandboxSpec
from sandbox_kernel.errors import (
    InvalidPortTokenError,
    SandboxError,
    StorageError,
    StorageFullError,
)
from sandbox_kernel.manager import log
from sandbox_kernel.manager.lifecycle import State
from sandbox_kernel.manager.storage import keep_owner_bits, storage_errors
from sandbox_kernel.wall.modes import Mode

__all__ = ["Entry", "Failures", "Leftover", "PortEntry", "Registry"]

T = TypeVar("T")


_SCHEMAS = (
    """
CREATE TABLE sandbox (
    sandbox_id TEXT PRIMARY KEY,
    lifetime   TEXT NOT NULL UNIQUE,
    state      TEXT NOT NULL,
    engine     TEXT NOT NULL,
    spec       TEXT NOT NULL,
    ephemeral  INTEGER NOT NULL,
    token      TEXT,
    instance   TEXT,
    created_at REAL NOT NULL,
    started_at REAL
) STRICT;
CREATE TABLE leftover (
    lifetime   TEXT PRIMARY KEY,
    sandbox_id TEXT NOT NULL
) STRICT;
CREATE TABLE failure (
    sandbox_id TEXT PRIMARY KEY,
    count      INTEGER NOT NULL,
    error      TEXT NOT NULL,
    at         REAL NOT NULL
) STRICT;
""",
    """
CREATE TABLE port (
    lifetime    TEXT NOT NULL,
    port        INTEGER NOT NULL,
    token       TEXT NOT NULL,
    name        TEXT,
    incarnation TEXT NOT NULL,
    start       TEXT NOT NULL,
    exposed_at  REAL NOT NULL,
    PRIMARY KEY (lifetime, port),
    UNIQUE (lifetime, token)
) STRICT;
""",
    """
ALTER TABLE sandbox ADD COLUMN pooled INTEGER NOT NULL DEFAULT 0;
""",
)
"""What each version of the file adds to the one before it."""

_SCHEMA_VERSION = len(_SCHEMAS)
_COLUMNS = (
    "sandbox_id, lifetime, state, engine, spec, ephemeral, token, instance, created_at, started_at,"
    " pooled"
)

_SELECT = f"SELECT {_COLUMNS} FROM sandbox"  # noqa: S608  constants only
_INTO = f"INTO sandbox ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

_PORT_FIELDS = ("lifetime", "port", "token", "name", "incarnation", "start", "exposed_at")
_SELECT_PORT = f"SELECT {', '.join(_PORT_FIELDS)} FROM port"  # noqa: S608  likewise
_INTO_PORT = "INSERT OR REPLACE INTO port VALUES (?, ?, ?, ?, ?, ?, ?)"

_BUSY_TIMEOUT = 10.0
_RESERVE_BYTES = 256 << 10
_FAILURES_KEPT = 86400.0
_DAMAGE = (
    *(ValueError, TypeError, KeyError, AttributeError, RecursionError),
    # A value that is refused today, such as text where a bool belongs: the safe default holds.
    SandboxError,
)
"""What reading a value raises that is not as we wrote it."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is known of one sandbox id."""

    sandbox_id: str
    lifetime: str
    state: State
    engine: str
    """How the engine is named in the settings: its name, or ``module:Class``."""
    spec: SandboxSpec
    """What it was last started with."""
    chosen: frozenset[str]
    """Fields of it that were chosen for this sandbox; the others follow the settings."""
    ephemeral: bool
    token: str | None
    instance: Instance | None
    created_at: float
    started_at: float | None
    pooled: bool = False
    """Whether it waits in a pool: its id is a place there, and nobody's."""


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """A destroyed lifetime whose files are yet to be removed."""

    lifetime: str
    sandbox_id: str


@dataclass(frozen=True, kw_only=True)
class PortEntry:
    """A port that is exposed for the rest of a lifetime."""

    lifetime: str
    port: int
    token: str
    name: str | None
    incarnation: str
    """The runtime it was exposed in last."""
    start: str
    """The start of the sandbox that runtime belongs to; see `manager.ports`."""
    exposed_at: float


@dataclass(frozen=True, kw_only=True)
class Failures:
    """How many starts of an id have failed, and what the last one raised."""

    count: int
    error: SandboxError | None


class Registry:
    """The registry in one file; connects at its first use, usable from any thread.

    Parameters
    ----------
    path : Path
        The database; its folder exists and is private.
    found : callable
        Called once when the file is new: yields an `Entry` for each sandbox whose files are there
        already, so that a lost registry loses no sandbox.
    """

    def __init__(self, path: Path, found: Callable[[], Iterator[Entry]] = lambda: iter(())) -> None:
        self._path = path
        self._found = found
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._file: tuple[int, int] | None = None

    def close(self) -> None:
        """Close the database; the next use opens it again."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    # --- reading ---

    def get(self, sandbox_id: str) -> Entry | None:
        """Return the entry of an id, or None."""
        rows = self._read(f"{_SELECT} WHERE sandbox_id = ?", (sandbox_id,))
        return _entry(rows[0]) if rows else None

    def all(self) -> list[Entry]:
        """Return every entry, by id."""
        return [_entry(row) for row in self._read(f"{_SELECT} ORDER BY sandbox_id")]

    def leftovers(self) -> list[Leftover]:
        """Return the destroyed lifetimes whose files may still be there."""
        rows = self._read("SELECT lifetime, sandbox_id FROM leftover")
        return [Leftover(lifetime=row[0], sandbox_id=row[1]) for row in rows]

    def failures(self, sandbox_id: str) -> Failures:
        """Return how often starting this id has failed, and how last."""
        rows = self._read("SELECT count, error FROM failure WHERE sandbox_id = ?", (sandbox_id,))
        if not rows:
            return Failures(count=0, error=None)
        try:
            error = SandboxError.from_wire(json.loads(rows[0][1]))
        except _DAMAGE:
            error = None
        return Failures(count=rows[0][0], error=error)

    def ports(self, lifetime: str) -> list[PortEntry]:
        """Return the ports exposed in a lifetime, the lowest first."""
        rows = self._read(f"{_SELECT_PORT} WHERE lifetime = ? ORDER BY port", (lifetime,))
        return [_port_entry(row) for row in rows]

    # --- writing; each method is one transaction ---

    def put(self, entry: Entry) -> None:
        """Insert or replace the entry of an id."""
        self._write([(f"INSERT OR REPLACE {_INTO}", _row(entry))])

    def claim(self, waiting: Entry, claimed: Entry) -> bool:
        """Give what waits in a pool an id of its own; whether that could be done.

        It cannot if the id is taken, or if what waits was claimed, ended or started anew meanwhile.
        """

        def work(connection: sqlite3.Connection) -> bool:
            taken = connection.execute(
                "SELECT 1 FROM sandbox WHERE sandbox_id = ?", (claimed.sandbox_id,)
            ).fetchone()
            gone = connection.execute(
                "DELETE FROM sandbox WHERE sandbox_id = ? AND token = ? AND state = ? AND pooled"
                " AND ?",
                (waiting.sandbox_id, waiting.token, State.RUNNING.value, taken is None),
            )
            if not gone.rowcount:
                return False
            connection.execute(f"INSERT {_INTO}", _row(claimed))
            return True

        return self._transact(work)

    def remove(self, entry: Entry) -> None:
        """Forget an id, and remember that the files of its lifetime have to go."""
        self._write(
            [
                ("DELETE FROM sandbox WHERE sandbox_id = ?", (entry.sandbox_id,)),
                ("DELETE FROM port WHERE lifetime = ?", (entry.lifetime,)),
                (
                    "INSERT OR REPLACE INTO leftover VALUES (?, ?)",
                    (entry.lifetime, entry.sandbox_id),
                ),
            ]
        )

    def forget_leftover(self, lifetime: str) -> None:
        """Note that the files of a destroyed lifetime are gone."""
        self._write([("DELETE FROM leftover WHERE lifetime = ?", (lifetime,))])

    def add_failure(self, sandbox_id: str, error: SandboxError) -> None:
        """Count a failed start, so that all who waited for it learn how it ended."""
        now = time.time()
        self._write(
            [
                ("DELETE FROM failure WHERE at < ?", (now - _FAILURES_KEPT,)),
                (
                    (
                        "INSERT INTO failure VALUES (?, 1, ?, ?) ON CONFLICT (sandbox_id) DO UPDATE"
                        " SET count = count + 1, error = excluded.error, at = excluded.at"
                    ),
                    (sandbox_id, json.dumps(error.to_wire(), default=str), now),
                ),
            ]
        )

    def put_port(self, given: PortEntry, secret: str, *, is_chosen: bool) -> PortEntry | None:
        """Note that a port is exposed, under the token it has already unless one is chosen.

        Parameters
        ----------
        given : PortEntry
            A name of None leaves the one it has.
        secret : str
            Of the incarnation it is exposed in; if that no longer runs, nothing is changed.
        is_chosen : bool
            Whether the token given replaces another one.

        Returns
        -------
        PortEntry or None
            What holds now; None if the sandbox has ended or started anew meanwhile.

        Raises
        ------
        InvalidPortTokenError
            Another port of the sandbox has this token.
        """
        row = (given.lifetime, given.port)

        def work(connection: sqlite3.Connection) -> PortEntry | None:
            runs = connection.execute(
                "SELECT 1 FROM sandbox WHERE lifetime = ? AND state = ? AND token = ?",
                (given.lifetime, State.RUNNING.value, secret),
            ).fetchone()
            if runs is None:
                return None
            known = connection.execute(
                f"{_SELECT_PORT} WHERE lifetime = ? AND port = ?", row
            ).fetchone()
            entry = given
            if known is not None:
                before = _port_entry(known)
                token = given.token if is_chosen else before.token
                name = before.name if given.name is None else given.name
                entry = replace(given, token=token, name=name)
            taken = connection.execute(
                "SELECT port FROM port WHERE lifetime = ? AND token = ? AND port <> ?",
                (entry.lifetime, entry.token, entry.port),
            ).fetchone()
            if taken is not None:
                raise InvalidPortTokenError(entry.port, f"it is that of port {taken[0]}")
            connection.execute(_INTO_PORT, tuple(getattr(entry, each) for each in _PORT_FIELDS))
            return entry

        return self._transact(work)

    def remove_port(self, lifetime: str, port: int) -> None:
        """Forget that a port is exposed; one that is not is fine."""
        self._write([("DELETE FROM port WHERE lifetime = ? AND port = ?", (lifetime, port))])

    # --- the database ---

    def _read(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            with self._lock, self._errors("read"):
                return self._connected().execute(query, values).fetchall()
        except (StorageError, StorageFullError) as error:
            # Not a damaged file, nor one of a newer release, which could be read by chance.
            is_of_the_disk = isinstance(error.__cause__, sqlite3.OperationalError | OSError)
            rows = self._read_unwritable(query, values) if is_of_the_disk else None
            if rows is None:
                raise
            return rows

    def _read_unwritable(
        self, query: str, values: tuple[object, ...]
    ) -> list[tuple[Any, ...]] | None:
        """Read on a full or read-only disk, where the log's index cannot be made.

        Without a log the file alone is the whole truth, and can be read as it is.
        """
        log = Path(f"{self._path}-wal")
        try:
            if not self._path.stat().st_size or (log.exists() and log.stat().st_size):
                return None
            name = self._path.absolute().as_uri()
            with closing(sqlite3.connect(f"{name}?mode=ro&immutable=1", uri=True)) as connection:
                connection.text_factory = _text
                return connection.execute(query, values).fetchall()
        except (OSError, sqlite3.Error):
            return None

    def _write(self, statements: list[tuple[str, tuple[object, ...]]]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            for statement, values in statements:
                connection.execute(statement, values)

        self._transact(work)

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do what belongs together; it is done as a whole or not at all."""
        with self._lock:
            try:
                done = self._transact_once(work)
            except StorageFullError:
                # Ending sandboxes frees space, and must be possible when there is none.
                self._reserve.unlink(missing_ok=True)
                return self._transact_once(work)
            self._keep_reserve()
            return done

    def _transact_once(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._errors("write"):
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
            try:
                done = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return done

    @property
    def _reserve(self) -> Path:
        return self._path.with_name("reserve")

    def _keep_reserve(self) -> None:
        if self._reserve.exists():
            return
        try:
            self._reserve.touch(0o600)
            with open(self._reserve, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)
        except OSError:
            self._reserve.unlink(missing_ok=True)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and self._pid == os.getpid():
            if self._identity() == self._file:
                return self._connection
            # Somebody removed or replaced the file; what we hold is no longer the truth.
            self._connection.close()
        # A connection must not be used, nor closed, in a forked child; the copy is left alone.
        self._connection = None
        with storage_errors(self._path, "open"):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                keep_owner_bits(descriptor)
            finally:
                os.close(descriptor)
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
        )
        connection.text_factory = _text
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._pid, self._file = connection, os.getpid(), self._identity()
        return connection

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        # NORMAL: a power cut may cost the last changes, never the file; the engine knows better.
        connection.execute("PRAGMA synchronous = NORMAL")
        if version == _SCHEMA_VERSION:
            return
        if version > _SCHEMA_VERSION:
            raise StorageError(
                str(self._path),
                "use",
                f"a newer release wrote it (schema {version}, this one knows {_SCHEMA_VERSION})",
                "Upgrade jupyter-sandbox-kernel, or point JUPYTER_DATA_DIR elsewhere.",
            )
        # A network file system without shared memory answers with another mode; that works too.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been faster between the two looks.
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            for schema in _SCHEMAS[version:]:
                for statement in schema.split(";"):
                    connection.execute(statement)
            if version == 0:
                for entry in self._found():
                    connection.execute(f"INSERT OR IGNORE {_INTO}", _row(entry))
            if version < _SCHEMA_VERSION:
                connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(error, action) from error

    def _translated(self, error: sqlite3.Error, action: str) -> SandboxError:
        path = str(self._path)
        code = (error.sqlite_errorcode or 0) & 0xFF if hasattr(error, "sqlite_errorcode") else 0
        if code == sqlite3.SQLITE_FULL or (
            # A log that cannot grow is reported as a plain I/O error.
            code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and self._is_disk_full()
        ):
            return StorageFullError(path, action)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StorageError(
                path,
                action,
                f"the file is damaged ({error})",
                "Move it away together with its '-wal' and '-shm' files;"
                " the sandboxes are found again by their folders.",
            )
        if code == sqlite3.SQLITE_BUSY:
            return StorageError(
                path,
                action,
                f"another process has held it for {_BUSY_TIMEOUT:.0f} s",
                "End that process ('fuser' names it), then try again.",
            )
        return StorageError(path, action, str(error))

    def _is_disk_full(self) -> bool:
        try:
            status = os.statvfs(self._path.parent)
        except OSError:
            return False
        return status.f_bavail * status.f_frsize < _RESERVE_BYTES


def _text(value: bytes) -> str:
    """Return what is kept as text; bytes that are none spoil their row and no other."""
    return value.decode("utf-8", "surrogateescape")


def _row(entry: Entry) -> tuple[object, ...]:
    return (
        entry.sandbox_id,
        entry.lifetime,
        entry.state.value,
        entry.engine,
        _spec_to_json(entry.spec, entry.chosen),
        int(entry.ephemeral),
        entry.token,
        json.dumps(asdict(entry.instance)) if entry.instance is not None else None,
        entry.created_at,
        entry.started_at,
        int(entry.pooled),
    )


def _entry(row: tuple[Any, ...]) -> Entry:
    damaged = []
    try:
        state = State(row[2])
    except ValueError:
        damaged.append("state")
    try:
        spec, chosen = _spec_from_json(row[4])
    except _DAMAGE:
        damaged.append("specification")
        spec, chosen = SandboxSpec(), frozenset()
    try:
        instance = _instance_from_json(row[7]) if row[7] is not None else None
    except _DAMAGE:
        damaged.append("instance")
        instance = None
    if damaged:
        log.warning("sandbox %s: the registry's %s is damaged", row[0], " and ".join(damaged))
    if "state" in damaged or "instance" in damaged:
        # As after a crash: the next verb first ends whatever may still run.
        state = State.STOPPING
    return Entry(
        sandbox_id=row[0],
        lifetime=row[1],
        state=state,
        engine=row[3],
        spec=spec,
        chosen=chosen,
        # What nobody can read goes only when somebody says so.
        ephemeral=bool(row[5]) and not damaged,
        token=row[6],
        instance=instance,
        created_at=row[8],
        started_at=row[9],
        pooled=bool(row[10]),
    )


def _port_entry(row: tuple[Any, ...]) -> PortEntry:
    return PortEntry(**dict(zip(_PORT_FIELDS, row, strict=True)))


def _known(cls: type[Any], value: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a newer release added."""
    names = {field.name for field in fields(cls)}
    return {name: item for name, item in value.items() if name in names}


def _instance_from_json(text: str) -> Instance:
    return Instance(**_known(Instance, json.loads(text)))


def _spec_to_json(spec: SandboxSpec, chosen: frozenset[str]) -> str:
    value = {field.name: getattr(spec, field.name) for field in fields(spec)}
    value["env"] = dict(spec.env)
    value["limits"] = asdict(spec.limits)
    value["notebook_folder"] = None if spec.notebook_folder is None else str(spec.notebook_folder)
    value["chosen"] = sorted(chosen)
    return json.dumps(value)


def _spec_from_json(text: str) -> tuple[SandboxSpec, frozenset[str]]:
    given = json.loads(text)
    value = _known(SandboxSpec, given)
    chosen = frozenset(given.get("chosen", ())) & value.keys()
    folder = value.get("notebook_folder")
    value["notebook_folder"] = None if folder is None else Path(folder)
    value["folder_mode"] = FolderMode(value.get("folder_mode", FolderMode.OVERLAY))
    value["output_policy"] = Mode(value.get("output_policy", Mode.DEFAULT))
    value["limits"] = Limits(**_known(Limits, value.get("limits", {})))
    return SandboxSpec(**value), chosen
