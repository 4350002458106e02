"""The simulator runs the driver machine of Spark: a step of a micro-batch that comes too early or too late is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.misordered import MISORDERED, Patch
from tests.sim.test_committers import stories


@pytest.mark.slow
@pytest.mark.parametrize("plant", MISORDERED, ids=lambda plant: plant.__name__)
def test_a_step_out_of_order_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert stories()
