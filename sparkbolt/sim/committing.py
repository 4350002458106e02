"""Committing: the committers of one life, called without threads."""

from __future__ import annotations

from sparkbolt.api.committers import CommittingBolt
from sparkbolt.api.metric_handles import MetricsRecorder
from sparkbolt.base.exceptions import user_code
from sparkbolt.driver.effects import Commit
from sparkbolt.layout.lane import Lane
from sparkbolt.worker.environment import WorkerEnvironment
from sparkbolt.worker.worker import context_of


class LocalCommitters:
    """The committers of one life."""

    def __init__(self, lane: Lane, environment: WorkerEnvironment, recorder: MetricsRecorder | None = None) -> None:
        """Open nothing yet; ``recorder`` records the metrics that they declare."""
        self._recorder = recorder
        self._lane = lane
        self._environment = environment
        self._open: dict[str, CommittingBolt] = {}
        """By the id under which the rows were kept."""

    def commit(self, effect: Commit) -> None:
        """Pass rows to the ``commit`` of a component, as the one that kept them."""
        component, name = effect.component, effect.kept_as or effect.component
        bolt = self._open.get(name)
        with user_code(f"commit of {component!r}"):
            if bolt is None:
                bolt = self._environment.unpickle(self._environment.components[component])
                number = self._lane.topology.tasks(component)[0]
                context = context_of(self._lane, number, self._environment.rehearsal_directory, recorder=self._recorder)
                context.component = name
                bolt.begin(context)
                self._open[name] = bolt
            bolt.commit(effect.txid, effect.rows())

    def end(self) -> None:
        """Call ``end`` of each committer that was opened."""
        for component, bolt in self._open.items():
            with user_code(f"end of {component!r}"):
                bolt.end()
        self._open.clear()
