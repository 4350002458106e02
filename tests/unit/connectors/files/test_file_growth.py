"""How the plans of file spouts grow with the files: counted calls."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from benchmarks.scale_driver import read_out
from sparkbolt.connectors.files.file_planner import FilePlanner
from tests.unit.growth import assert_linear, calls_of


def write(directory: Path, count: int, ending: str = ".txt") -> None:
    for number in range(count):
        (directory / f"{number:06}{ending}").write_text(f"line {number}\n")


@pytest.mark.slow
def test_files_already_read_add_no_cost_to_later_plans() -> None:
    def all_plans(count: int) -> int:
        with tempfile.TemporaryDirectory() as directory:
            write(Path(directory), count)
            planner = FilePlanner([directory], follow=False, parallelism=1, clock=lambda: 0.0)
            calls = calls_of(lambda: read_out(planner, count))
            ends = {str(Path(directory, f"{number:06}.txt")): 1 << 20 for number in range(count)}
            assert planner.finished(ends)
            assert not planner.finished({})
            planner.close()
        return calls

    assert_linear(all_plans, 130)
