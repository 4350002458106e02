"""Sinks of dead letters in a simulation, and the promise that is made of them.

Which question it answers: what stands where dead letters go, and is it what it has to be?
Rule 1: in the place of every sink stands one that outlives all processes, whatever a spout's own would be: nothing that
is simulated is written to a file or sent to a broker. Dead letters that go to a stream go there.
Rule 2: a sink fails by chance, sometimes with the letters already in it, and its worker may die before it has said so.
Chance depends on the letter and the micro-batch, so that a micro-batch that runs again does the same.

Read before: ``base``, ``observer``.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, MutableMapping, Sequence

import numpy as np

from sparkbolt.core.base.ids import split_key
from sparkbolt.core.driver.ledger.ledger import Promotion
from sparkbolt.core.model.components import PartitionedSpout, TopologyContext
from sparkbolt.core.model.dead_letters import DeadLetter, ExhaustedMessage, stream_of
from sparkbolt.core.model.story import root_text
from sparkbolt.core.protocol.plan import MicroBatchPlan
from sparkbolt.sim.checkers.base import Checker, Facts
from sparkbolt.sim.checkers.trees import ExpectedVerdict
from sparkbolt.sim.driver import Driver
from sparkbolt.sim.executors import MicroBatchOutcome
from sparkbolt.sim.observer import AttemptObserver
from sparkbolt.sim.sources import FedSpout

FAILS_ONE_IN = 5


class SimulatedSink:
    """Keeps letters by their ids, and fails by chance; obeys ``DeadLetterSink``."""

    def __init__(self, kept: MutableMapping[str, DeadLetter], observer: AttemptObserver) -> None:
        """Put letters into ``kept``; ``observer`` see each of them, and say whether the worker dies."""
        self._kept = kept
        self._observer = observer

    def open(self, context: TopologyContext) -> None:
        """Nothing to open."""

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Keep the letters.

        Raises:
            OSError: by chance.
        """
        for letter in letters:
            chance = zlib.crc32(f"{letter.id}/{self._observer.now.micro_batch_id}".encode()) % (2 * FAILS_ONE_IN)
            if chance == 0:
                raise OSError("the sink is away")
            self._kept[letter.id] = letter
            self._observer.wrote()
            if chance == 1:
                raise OSError("the sink has gone away without an answer")

    def close(self) -> None:
        """Nothing to close."""


def letters_in(bodies: Iterable[bytes]) -> list[DeadLetter]:
    """The letters of files as the checkpoint has them."""
    return [DeadLetter.from_json(json.loads(line)) for body in bodies for line in body.splitlines()]


class NothingIsGivenUpInSilence(Checker):
    """What is given up is finished only once its dead letter is durable, and a letter tells only of what failed."""

    promise = "a dead letter for what is given up"

    def __init__(self, facts: Facts) -> None:
        """Nothing has failed."""
        super().__init__(facts)
        self._failed: set[str] = set()
        """Roots of trees that failed with committed micro-batches."""
        self._seen: set[str] = set()
        self._finished: set[str] = set()
        self._open: dict[int, tuple[str, str]] = {}
        """Key of each dead letter's tree that is open to (component, id)."""
        self._lettered = {spec.id: spec for spec in facts.subject.topology.spouts if spec.dead_letters is not None}

    def ran(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome) -> None:
        """Look at the letters that are new."""
        for name in [name for name in self.facts.letters if name not in self._seen]:
            self._seen.add(name)
            self._look(self.facts.letters[name])

    def _look(self, letter: DeadLetter) -> None:
        for attempt in letter.attempts:
            if attempt.root not in self._failed:
                self.broken(
                    f"the dead letter of {letter.where} tells of root {attempt.root}, attempt {attempt.number}, which "
                    "did not fail"
                )
        spout = self.facts.subject.topology.components[letter.component].component
        if isinstance(spout, FedSpout) and letter.position is not None:
            values = tuple(spout.shares[letter.task][letter.position])
            if letter.tuples != (values,):
                self.broken(f"the dead letter of {letter.where} holds {letter.tuples!r:.80}, the message is {values!r}")

    def committed(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome, verdict: ExpectedVerdict) -> None:
        """A letter's tree is complete only if the letter is there."""
        for key, component, name in self._letters(plan, verdict):
            if name in self._finished:
                self.broken(f"{self.facts.where(key)}: its message is finished for the second time", key)
            self._finished.add(name)
            sink = stream_of(self._lettered[component].dead_letters) is None
            if sink and name not in self.facts.letters:
                self.broken(f"{self.facts.where(key)}: finished, and there is no dead letter of it", key)
        self._failed.update(map(root_text, verdict.failed))

    def _letters(self, plan: MicroBatchPlan, verdict: ExpectedVerdict) -> Iterator[tuple[int, str, str]]:
        """(key, component, id) of the letters whose trees are complete with this micro-batch."""
        topology = self.facts.subject.topology
        for entry in plan.entries:
            if entry.letters is None or (entry.source is None and entry not in self.facts.running):
                continue
            component, _ = topology.task_owner(entry.task)
            for place, text in enumerate(entry.letters):
                self._open[entry.first_key + place] = (
                    component,
                    ExhaustedMessage.loads(text).id_in(topology.name, component),
                )
        if not self._open:
            return
        keys = np.array(sorted(self._open), dtype=np.uint64)
        for key in keys[np.isin(keys, verdict.acked)].tolist():
            yield key, *self._open.pop(key)
        for key in [key for key in self._open if key in verdict.failed]:
            del self._open[key]

    def life_began(self, driver: Driver) -> None:
        """The letters of a ``Spout``'s messages are void with their life: its queue gives the messages again."""
        topology = self.facts.subject.topology
        ranged = {spec.id for spec in topology.spouts if isinstance(spec.component, PartitionedSpout)}
        self._open = {key: known for key, known in self._open.items() if known[0] in ranged}

    def promoted(self, driver: Driver, promotion: Promotion, verdict: ExpectedVerdict) -> None:
        """No letter is counted as an acked message."""
        for first, _, _ in promotion.letters:
            if driver.coordinator.topology.task_owner(split_key(first)[0])[0] not in self._lettered:
                self.broken(f"{self.facts.where(first)} counts as a dead letter, and is none", first)

    def ended(self, driver: Driver) -> None:
        """Each message that was given up has been counted, as what it is."""
        for component in self._lettered:
            counts = driver.ledger.metrics.of(component)
            if counts.set_aside != counts.dead_letters:
                self.broken(
                    f"{counts.set_aside} messages of {component!r} were given up, and {counts.dead_letters} dead "
                    "letters are counted"
                )
