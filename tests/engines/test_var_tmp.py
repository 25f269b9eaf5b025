"""A notebook below /var/tmp, which is a link in the sandbox."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings


def test_a_folder_below_var_tmp_is_shown(tmp_path):
    """The sandbox starts, and has the folder at its own path."""
    from sandbox_kernel.sync import get_sandbox

    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder, "f").write_text("here")
        manager = Manager(Settings(data_dir=tmp_path / "sandbox", engine="bubblewrap"))
        try:
            with get_sandbox("vt", manager=manager, notebook_folder=folder) as sandbox:
                assert sandbox.exec(["cat", f"{folder}/f"]).stdout == b"here"
        finally:
            manager.destroy("vt")
            manager.close()
