"""What files of a sandbox cost beside copying the same files on this machine.

python tests/benchmarks/files.py [--rounds N] [--json FILE]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from sandbox_kernel.sync import get_sandbox
from tests.support.benchmark_table import Row, run_table

BULK = 100 << 20
FILES = 10_000
FOLDERS = 100
BYTES_EACH = 2000


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def copied(*words: object) -> float:
    return timed(lambda: subprocess.run(list(map(str, words)), check=True))


def piped(source: Path, target: Path) -> float:
    target.mkdir()
    command = f"tar -C {source} -cf - . | tar -C {target} -xf -"
    return timed(lambda: subprocess.run(["sh", "-c", command], check=True))


def measure(rounds: int, _only: list[str]) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with closing(Manager(Settings(data_dir=folder / "data"))) as manager:
            sandbox = get_sandbox("bench", manager=manager)
            try:
                sandbox.exec(["true"])
                yield from large(sandbox, folder, rounds)
                yield from small(sandbox, folder, rounds)
            finally:
                sandbox.destroy()


def large(sandbox, folder: Path, rounds: int) -> Iterator[Row]:
    content = os.urandom(BULK)
    source = folder / "large"
    source.write_bytes(content)
    rates: dict[str, list[float]] = {"cp": [], "read": [], "write": [], "write of a path": []}
    for _ in range(rounds):
        rates["cp"].append(copied("cp", source, folder / "copy"))
        rates["write"].append(timed(lambda: sandbox.write_file("large", content)))
        rates["write of a path"].append(timed(lambda: sandbox.write_file("large", source)))
        rates["read"].append(timed(lambda: sandbox.read_file("large")))
    speeds = {key: [BULK / 1e6 / each for each in values] for key, values in rates.items()}
    for key in ("read", "write", "write of a path"):
        values = {"cp": speeds["cp"], "sandbox": speeds[key]}
        yield Row(f"100 MiB, {key}", "MB/s", None, values, at_least=True)


def small(sandbox, folder: Path, rounds: int) -> Iterator[Row]:
    source = folder / "small"
    for number in range(FOLDERS):
        (source / str(number)).mkdir(parents=True)
        for other in range(FILES // FOLDERS):
            (source / str(number) / str(other)).write_bytes(os.urandom(BYTES_EACH))
    times: dict[str, list[float]] = {"cp -r": [], "tar | tar": [], "upload": [], "download": []}
    for turn in range(rounds):
        times["cp -r"].append(copied("cp", "-r", source, folder / f"cp{turn}"))
        times["tar | tar"].append(piped(source, folder / f"tar{turn}"))
        times["upload"].append(timed(lambda: sandbox.upload_folder(source, "small")))
        back = folder / f"back{turn}"
        times["download"].append(timed(lambda b=back: sandbox.download_folder("small", b)))  # type: ignore[misc]
        sandbox.delete_file("small", recursive=True)
        for each in ("cp", "tar", "back"):
            shutil.rmtree(folder / f"{each}{turn}")
    for peer in ("cp -r", "tar | tar"):
        for key in ("upload", "download"):
            values = {peer: times[peer], "sandbox": times[key]}
            yield Row(f"10 000 files of 2 kB, {key}, beside {peer}", "s", None, values)


if __name__ == "__main__":
    sys.exit(run_table(str(__doc__), ("host", "sandbox"), measure))
