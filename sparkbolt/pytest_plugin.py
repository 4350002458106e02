"""The pytest plugin: the fixture ``topology_driver``, and stories of messages in the reports of failed assertions.

pytest loads it wherever Sparkbolt is installed, so its import is fast.
"""

from __future__ import annotations

import reprlib
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from sparkbolt.sim.driver_results import DriverResult

if TYPE_CHECKING:
    from sparkbolt.api.topology import Topology
    from sparkbolt.streams.stream_builder import TopologyBuilder
    from sparkbolt.testing import TopologyTestDriver

__all__ = ["TopologyDriver"]

LINES_MAX = 20
"""How many lines of an account a report shows, besides the counts at its end; with ``-vv`` it shows all of them."""


class TopologyDriver(Protocol):
    """The type of the fixture ``topology_driver``: call it as you would call ``TopologyTestDriver``.

    pytest loads the fixture itself where Sparkbolt is installed. The drivers are closed at the end of the test.

    >>> def test_totals(topology_driver: TopologyDriver) -> None:
    ...     driver = topology_driver(topology)
    ...     driver.feed("orders", {"customer": "ann", "amount": 3}, message_id=1)
    ...     driver.run_until_idle()
    ...     assert driver.acked("orders") == [1]

    If an assertion compares ``driver.acked``, ``failed`` or ``emitted`` and fails, pytest also reports how each message
    failed, and where each message is that is not finished.
    """

    def __call__(self, topology: Topology | TopologyBuilder, **options: Any) -> TopologyTestDriver:
        """Return a driver; ``options`` are those of ``TopologyTestDriver``, such as ``start=``."""


@pytest.fixture
def topology_driver() -> Iterator[TopologyDriver]:
    """A function that makes a ``TopologyTestDriver`` for a topology; all of them are closed when the test ends."""
    from sparkbolt.testing import TopologyTestDriver

    with ExitStack() as drivers:

        def begin(topology: Topology | TopologyBuilder, **options: Any) -> TopologyTestDriver:
            return drivers.enter_context(TopologyTestDriver(topology, **options))

        yield begin


@pytest.hookimpl(wrapper=True)
def pytest_assertrepr_compare(
    config: pytest.Config, op: str, left: object, right: object
) -> Generator[None, list[list[str] | None], list[list[str] | None]]:
    """Add to a failed comparison with ``emitted``, ``acked`` or ``failed`` what happened to the messages.

    The account comes before the difference of the two lists, because pytest cuts off long reports.
    """
    explanations = yield
    results = [side for side in (left, right) if isinstance(side, DriverResult)]
    if not results:
        return explanations
    summary = f"{reprlib.repr(left)} {op} {reprlib.repr(right)}"  # where pytest has no explanation, as for ``in``
    explanation = next((one for one in explanations if one), [summary])
    lines = results[0].account()
    if len(lines) > LINES_MAX and config.get_verbosity() < 2:
        lines = [*lines[:LINES_MAX], f"... {len(lines) - LINES_MAX - 1} more lines (-vv shows them)", lines[-1]]
    return [[explanation[0], *lines, *explanation[1:]]]
