"""A kernel in an image of Docker that has none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from jupyter_client.connect import write_connection_file

from tests.support.docker import BARE, HOST, need_docker


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    """In the server's log, and at once: clients ask for nothing that could be answered so."""
    need_docker()
    name, _ = write_connection_file(str(tmp_path / "connection.json"), key=b"secret")
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()

    ended = subprocess.run(
        [sys.executable, "-m", "sandbox_kernel.kernel.launch", name],
        cwd=notebooks,
        env={
            **os.environ,
            "JUPYTER_DATA_DIR": str(tmp_path / "data"),
            "SANDBOX_ENGINE": "docker",
            "SANDBOX_CONFIG": json.dumps({"DockerEngine": {"host": HOST, "image": BARE}}),
        },
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 1
    assert "lacks the package ipykernel" in ended.stderr
    assert "DockerEngine.image" in ended.stderr
