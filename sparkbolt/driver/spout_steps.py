"""Spout steps: the calls of the partitioned spouts of a life; each call is an effect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.ranges import Range
from sparkbolt.driver.effects import AskLag, CallSpout, Steps
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.offers import checked


def defines(spout: PartitionedSpout | None, hook: str) -> bool:
    """Whether a spout defines a method that ``PartitionedSpout`` has for those that need none."""
    return spout is not None and getattr(type(spout), hook) is not getattr(PartitionedSpout, hook)


class SpoutSteps:
    """The partitioned spouts of one life."""

    def __init__(self, spouts: Mapping[str, PartitionedSpout], inlets: Iterable[str], ledger: Ledger) -> None:
        """Store the arguments; no spout is called yet.

        Args:
            spouts: as in ``Coordinator``.
            inlets: the components whose rows Spark reads: they offer no ranges, and do not report their ends.
            ledger: has the progress of the spouts, and counts their lags.
        """
        self._spouts = spouts
        self._reads = {component: spout for component, spout in spouts.items() if component not in inlets}
        self._ending = [component for component, spout in self._reads.items() if defines(spout, "finished")]
        self._ledger = ledger
        self._finished: dict[str, Mapping[str, int]] = {}
        """By spout: the progress for which its ``finished`` returned True."""

    def _progress(self, component: str) -> Mapping[str, int]:
        return self._ledger.progress.get(component, {})

    def offers(self, budgets: Mapping[str, int], tasks: Callable[[str], int]) -> Steps[dict[str, list[Range]]]:
        """The ranges that spouts offer for the next read; nothing is taken from them yet.

        Args:
            budgets: by spout, how many positions may be read.
            tasks: returns the number of a spout's tasks.
        """
        offered = {}
        for component, spout in self._reads.items():
            if budgets.get(component, 0) >= 1:
                done = self._progress(component)
                offer = yield CallSpout(component, spout, "next_ranges", (done, budgets[component]))
                takes_more, limit = self._ledger.messages.takes_more, spout.max_uncommitted
                offered[component] = [
                    range_
                    for range_ in checked(component, offer, done, tasks(component))
                    if takes_more(component, range_.source, max_uncommitted=limit)
                ]
        return offered

    def tell(self, component: str, hook: str, *arguments: Any) -> Steps[None]:
        """Call a method of a spout that defines it."""
        if defines(spout := self._spouts.get(component), hook):
            assert spout is not None
            yield CallSpout(component, spout, hook, arguments)

    def tell_sources(self, components: Iterable[str], *, changed: bool) -> Steps[None]:
        """Report to spouts the state of their sources: of all, or of those that have changed."""
        for component in components:
            if defines(self._spouts.get(component), "on_sources_changed"):  # to make the views takes time
                yield from self.tell(component, "on_sources_changed", self._ledger.views(component, changed=changed))

    def see_lag(self) -> Steps[None]:
        """Count the lags and the skipped positions of the spouts."""
        for component, spout in self._spouts.items():
            lags, secs, skipped = yield AskLag(component, spout)
            if lags or skipped:
                counts = self._ledger.metrics.of(component)
                counts.lag = sum(lags.values())
                counts.skipped += skipped
                self._ledger.metrics.lags[component] = {source: lag for source, lag in lags.items() if lag}
                self._ledger.metrics.lag_secs[component] = {source: secs[source] for source in secs if lags.get(source)}

    def ask_finished(self, is_done: Callable[[], bool]) -> Steps[None]:
        """Call ``finished`` of the spouts, if nothing else is left to do."""
        for component in self._ending if self._ending and is_done() else ():
            progress = dict(self._progress(component))
            if self._finished.get(component) != progress and (
                yield CallSpout(component, self._spouts[component], "finished", (progress,))
            ):
                self._finished[component] = progress

    def is_finished(self, component: str) -> bool:
        """Whether ``finished`` of a spout has returned True."""
        return self._finished.get(component) == self._progress(component)
