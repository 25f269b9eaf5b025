"""A notebook of somebody else's, as a file."""

from __future__ import annotations

import json
import os

import nbformat
import pytest

from sandbox_kernel import import_notebook
from sandbox_kernel.errors import SandboxConfigurationError, StorageError


@pytest.fixture
def source(tmp_path):
    cell = nbformat.v4.new_code_cell("1")
    cell.outputs = [
        nbformat.v4.new_output("display_data", {"text/html": "<script>window.__ran=true</script>"})
    ]
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": {"a": 1}})
    path = tmp_path / "found.ipynb"
    nbformat.write(notebook, path)
    return path


def test_the_copy_is_beside_it(source):
    """The source stays as it is, and a copy that is there already is not written over."""
    before = source.read_bytes()

    made = import_notebook(source)

    assert made.path == source.with_name("found-sandbox.ipynb")
    copy = nbformat.read(made.path, 4)
    nbformat.validate(copy)
    assert copy.metadata.kernelspec.name == "sandbox-python"
    assert "widgets" not in copy.metadata
    assert "srcdoc" in copy.cells[0].outputs[0].data["text/html"]
    assert made.changes[0] == "metadata of the notebook: left out 'widgets'"
    assert source.read_bytes() == before
    with pytest.raises(SandboxConfigurationError, match="exists already"):
        import_notebook(source)


def test_it_may_take_the_place_of_its_source(source):
    """What is named is written over."""
    assert import_notebook(source, source).path == source

    assert "widgets" not in json.loads(source.read_text())["metadata"]
    assert os.listdir(source.parent) == [source.name]


def test_old_formats_are_converted_with_their_outputs(tmp_path):
    """Jupyter would do so on opening, after everybody has looked at the file."""
    old = nbformat.v3.new_notebook(
        worksheets=[
            nbformat.v3.new_worksheet(
                cells=[
                    nbformat.v3.new_code_cell(
                        "1",
                        outputs=[
                            nbformat.v3.new_output(
                                "display_data", output_javascript="x", output_text="t"
                            )
                        ],
                    )
                ]
            )
        ]
    )
    path = tmp_path / "old.ipynb"
    path.write_text(json.dumps(old))

    made = nbformat.read(import_notebook(path).path, as_version=nbformat.NO_CONVERT)

    assert made.nbformat == 4
    assert set(made.cells[0].outputs[0].data) == {"text/plain"}


@pytest.mark.parametrize(
    "text", ["", "[]", "{not", '{"nbformat": 4}', '{"nbformat": 3}', '{"nbformat": 9}', "[" * 9999]
)
def test_what_is_no_notebook_is_an_error(tmp_path, text):
    """Nothing is written, and nothing crashes."""
    path = tmp_path / "x.ipynb"
    path.write_text(text)

    with pytest.raises(SandboxConfigurationError, match="is no notebook"):
        import_notebook(path)
    assert os.listdir(tmp_path) == ["x.ipynb"]


def test_files_that_cannot_be_had_are_named(tmp_path, source):
    """What is missing, and where nothing can be written."""
    with pytest.raises(SandboxConfigurationError, match="no notebook"):
        import_notebook(tmp_path / "missing.ipynb")
    with pytest.raises(SandboxConfigurationError, match="no file"):
        import_notebook(tmp_path)
    with pytest.raises(StorageError):
        import_notebook(source, tmp_path / "nowhere" / "x.ipynb")


def test_halves_of_characters_do_not_keep_a_notebook_from_being_written(tmp_path):
    """JSON can spell what UTF-8 cannot hold; what is written opens."""
    half = "a \ud800 b"
    output = {"output_type": "display_data", "metadata": {}, "data": {"text/html": half}}
    code = {"cell_type": "code", "metadata": {}, "source": half, "outputs": [output]}
    attached = {"x.png": {"text/html": half}}
    text = {"cell_type": "markdown", "metadata": {}, "source": half, "attachments": attached}
    notebook = {"cells": [code, text], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    path = tmp_path / "half.ipynb"
    path.write_text(json.dumps(notebook))

    made = import_notebook(path)

    copy = json.loads(made.path.read_text(encoding="utf-8"))
    assert [cell["source"] for cell in copy["cells"]] == ["a ? b", "a ? b"]
    assert copy["cells"][0]["outputs"] == []
    assert "cell 1: an output left out, it holds what is no text" in made.changes
