"""The engine as a parameter: every test of this directory runs on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from benchmarks.fast import fast
from sparkbolt.api.topology import Topology
from tests.contract.engines import Engine, OnSpark, Sim
from tests.native import WHY_NOT, missing

Begin: TypeAlias = Callable[[Callable[[str], Topology]], Any]


@pytest.fixture(scope="module", params=["sim", "compiled", pytest.param("spark", marks=[pytest.mark.spark])])
def begin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Begin:
    """Begins a topology of ``topologies`` in a directory of its own; a context manager that ends it.

    Python runs the loops of ``sim``, and the kernels of ``fast/`` those of ``compiled`` and of Spark.
    """
    if request.param == "compiled" and missing():
        pytest.skip(WHY_NOT)
    spark = request.getfixturevalue("spark") if request.param == "spark" else None

    @contextmanager
    def run(make: Callable[[str], Topology]) -> Iterator[Engine]:
        directory: Path = tmp_path_factory.mktemp(make.__name__)
        topology = make(str(directory))
        with fast(request.param == "compiled") if spark is None else nullcontext():
            engine = OnSpark(topology, directory, spark) if spark is not None else Sim(topology, directory)
            try:
                yield engine
            finally:
                engine.close()

    return run
