"""The notebook among the examples works in a real kernel, and shows what is written in it."""

from __future__ import annotations

import nbformat
import pytest

from docs.notebook import NOTEBOOK, executed, stable

BYTES_MAX = 50_000

pytestmark = [
    pytest.mark.spark,
    # What the kernel's own libraries warn of is not ours.
    pytest.mark.filterwarnings("default"),
]


def test_the_notebook_shows_what_is_written_in_it() -> None:
    written = nbformat.read(NOTEBOOK, as_version=4)
    assert stable(executed()) == stable(written), "python -m docs.notebook writes it anew"


def test_the_notebook_is_small_and_has_neither_log_lines_nor_numbers_of_executions() -> None:
    assert NOTEBOOK.stat().st_size < BYTES_MAX
    written = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(written)
    code = [cell for cell in written.cells if cell.cell_type == "code"]
    assert code
    assert all(cell.execution_count is None for cell in code)
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.get("name") for output in outputs} <= {None, "stdout"}
