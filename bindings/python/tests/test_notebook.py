# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The notebooks of `examples/` run as their readers run them, and are kept without outputs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[3] / "examples"
# Of one cell; all of them together take some seconds.
SECONDS_MAX = 120


def read(name: str) -> Any:
    return nbformat.read(EXAMPLES / name, as_version=4)


def run(notebook: Any, directory: Path, patch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Runs all cells in a directory, and returns the outputs of each by its id."""
    # The kernel is that of this Python, without settings and history of the user.
    for variable in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        patch.setenv(variable, str(directory / "jupyter"))
    patch.delenv("TERRACE_STORE", raising=False)
    work = directory / "work"
    work.mkdir()
    resources = {"metadata": {"path": str(work)}}
    NotebookClient(
        notebook, kernel_name="python3", timeout=SECONDS_MAX, resources=resources
    ).execute()
    return {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def html(outputs: list[Any]) -> str:
    return "".join(one.get("data", {}).get("text/html", "") for one in outputs)


def images(outputs: list[Any]) -> int:
    return sum("image/png" in one.get("data", {}) for one in outputs)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("**/*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


def test_policies_are_compared_on_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("terrace") is None:
        pytest.fail("there is no command `terrace`: build it, and put it on the PATH")
    outputs = run(read("compare-policies.ipynb"), tmp_path, monkeypatch)
    for policy in ("fast-only", "lru", "w-tinylfu", "slow-only"):
        assert policy in html(outputs["time-model"])
    assert [images(outputs[name]) for name in ("plots", "over-time", "cache-model")] == [1, 1, 1]
    assert "store/fast" in html(outputs["use"])
    # The policy moved the object, and its reason is in the table.
    assert "moved by policy" in html(outputs["explained"])
    said = "".join(one.get("text", "") for cell in outputs.values() for one in cell)
    assert "Warning" not in said
