"""Dead letters: the sinks of a simulation, and the promise about dead letters.

Every sink is replaced by one that outlives all processes and fails at random, sometimes after it has stored the
letters.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, MutableMapping, Sequence

import numpy as np

from sparkbolt.api.components import PartitionedSpout, TopologyContext
from sparkbolt.api.dead_letters import DeadLetter, ExhaustedMessage, stream_of
from sparkbolt.api.story import root_text
from sparkbolt.base.ids import split_key
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.sim.checkers.base import Checker, Facts
from sparkbolt.sim.checkers.trees import ExpectedVerdict
from sparkbolt.sim.driver import Driver
from sparkbolt.sim.executors import MicroBatchOutcome
from sparkbolt.sim.observer import AttemptObserver
from sparkbolt.sim.sources import FedSpout
from sparkbolt.wire.plan import MicroBatchPlan

FAILS_ONE_IN = 5


class SimulatedSink:
    """Stores letters by their ids, and fails at random; implements ``DeadLetterSink``."""

    def __init__(self, kept: MutableMapping[str, DeadLetter], observer: AttemptObserver) -> None:
        """Store letters in ``kept``; ``observer`` sees each of them and decides whether the worker dies."""
        self._kept = kept
        self._observer = observer

    def open(self, context: TopologyContext) -> None:
        """Do nothing."""

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Store the letters.

        Raises:
            OSError: At random.
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
        """Do nothing."""


def letters_in(bodies: Iterable[bytes]) -> list[DeadLetter]:
    """Return the letters of files in the checkpoint's format."""
    return [DeadLetter.from_json(json.loads(line)) for body in bodies for line in body.splitlines()]


class NothingIsGivenUpInSilence(Checker):
    """A given-up message is finished only after its dead letter is durable, and letters exist only for failures."""

    promise = "a dead letter for what is given up"

    def __init__(self, facts: Facts) -> None:
        """Start without failures."""
        super().__init__(facts)
        self._failed: set[str] = set()
        """Roots of trees that failed with committed micro-batches."""
        self._seen: set[str] = set()
        self._finished: set[str] = set()
        self._open: dict[int, tuple[str, str]] = {}
        """Open trees of dead letters: key -> (component, id)."""
        self._lettered = {spec.id: spec for spec in facts.subject.topology.spouts if spec.dead_letters is not None}

    def ran(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome) -> None:
        """Check the new letters."""
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
        """Check that a letter's tree is complete only if the letter is stored."""
        for key, component, name in self._letters(plan, verdict):
            if name in self._finished:
                self.broken(f"{self.facts.where(key)}: its message is finished for the second time", key)
            self._finished.add(name)
            sink = stream_of(self._lettered[component].dead_letters) is None
            if sink and name not in self.facts.letters:
                self.broken(f"{self.facts.where(key)}: finished, and there is no dead letter of it", key)
        self._failed.update(map(root_text, verdict.failed))

    def _letters(self, plan: MicroBatchPlan, verdict: ExpectedVerdict) -> Iterator[tuple[int, str, str]]:
        """Yield (key, component, id) of the letters whose trees are complete with this micro-batch."""
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
        """Forget letters of ``Spout`` messages with their life: the queue delivers those messages again."""
        topology = self.facts.subject.topology
        ranged = {spec.id for spec in topology.spouts if isinstance(spec.component, PartitionedSpout)}
        self._open = {key: known for key, known in self._open.items() if known[0] in ranged}

    def promoted(self, driver: Driver, promotion: Promotion, verdict: ExpectedVerdict) -> None:
        """Check that no letter counts as an acked message."""
        for first, _, _ in promotion.letters:
            if driver.coordinator.topology.task_owner(split_key(first)[0])[0] not in self._lettered:
                self.broken(f"{self.facts.where(first)} counts as a dead letter, and is none", first)

    def ended(self, driver: Driver) -> None:
        """Check that each given-up message was counted, with the right outcome."""
        for component in self._lettered:
            counts = driver.ledger.metrics.of(component)
            if counts.given_up != counts.dead_letters:
                self.broken(
                    f"{counts.given_up} messages of {component!r} were given up, and {counts.dead_letters} dead "
                    "letters are counted"
                )
