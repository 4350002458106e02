"""The example notebook: runs it, and writes it with what it shows.

    python -m docs.notebook       # runs examples/notebook.ipynb, and writes it with its outputs

Rule 1: what is written is small and stays the same: without log lines, which differ from run to run, and without the
numbers of executions and other metadata. Durations do differ; ``stable`` leaves them out of comparisons.
Rule 2: the notebook runs with this interpreter, in a folder of its own.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "examples" / "notebook.ipynb"
CELL_SECS = 300
"""How long one cell may take."""
_PASSING = re.compile(r"\d[\d,.]* ms|\d+ micro-batches|micro-batch \d+|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*")


def executed(path: Path = NOTEBOOK) -> Any:
    """Return a notebook with the outputs that its cells have now; an error in a cell is raised.

    Raises:
        CellExecutionError: a cell raised.
    """
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=CELL_SECS, kernel_name="python3", resources=_within(folder))
        client.execute()
    return bare(notebook)


def _within(folder: str) -> dict[str, Any]:
    return {"metadata": {"path": folder}}


def bare(notebook: Any) -> Any:
    """Remove from a notebook what differs from run to run and from machine to machine."""
    version = f"{sys.version_info.major}"
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "version": version},
    }
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type != "code":
            continue
        cell.execution_count = None
        cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = None
    return notebook


def stable(notebook: Any) -> list[tuple[str, list[Any]]]:
    """Return the source and the outputs of each code cell, without durations and times."""
    return [
        (cell.source, [_without_times(output) for output in cell.outputs])
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _without_times(value: Any) -> Any:
    if isinstance(value, str):
        return _PASSING.sub("...", value)
    if isinstance(value, dict):
        return {key: _without_times(one) for key, one in value.items()}
    return [_without_times(one) for one in value] if isinstance(value, list) else value


if __name__ == "__main__":
    nbformat.write(executed(), NOTEBOOK)  # type: ignore[no-untyped-call]
