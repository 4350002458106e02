"""Mistakes: errors of the topology itself that show without any fault, and the messages that it would have sent.

A mistake is not a broken promise: the engine works as promised, but the topology will not work as expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from sparkbolt.api.causes import EXHAUSTED, Cause
from sparkbolt.api.components import AsyncBolt, BasicBolt
from sparkbolt.api.reports import FailedTree
from sparkbolt.base.ids import mix64, split_key
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.sim.checkers.base import TRIES_IN_VAIN_MAX, Checker, Facts, Records
from sparkbolt.sim.checkers.trees import ExpectedVerdict
from sparkbolt.sim.driver import Driver
from sparkbolt.sim.executors import MicroBatchOutcome
from sparkbolt.sim.simulate import STAND_IN, run_seed
from sparkbolt.sim.subject import Subject
from sparkbolt.wire.plan import MicroBatchPlan

VALUES_KEPT_MAX = 1_000_000
"""Values are known of at most this many deliveries, those of the newest micro-batches."""


class MistakeKind(StrEnum):
    """The kinds of a topology's mistakes."""

    NEVER_ACKED = "never acked"
    FAILED = "failed"
    EXHAUSTED = "given up"
    NEVER_TAKEN = "never taken"
    RAISED = "ended by an exception"
    CHANGED = "changed after being emitted"


@dataclass(frozen=True)
class Mistake:
    """One mistake of a component."""

    kind: MistakeKind
    component: str
    messages: int
    """How many messages are affected; for the kind ``CHANGED`` how many values, for ``RAISED`` how many calls."""
    example: str
    """The first affected message: its origin, and its outcome."""
    likely: str
    """The likely cause, and the remedy."""

    @property
    def words(self) -> str:
        """The mistake as three lines of text.

        >>> print(Mistake(MistakeKind.NEVER_ACKED, "join", 1, "m[0] at 3: ...", "no collector.ack(tup)").words)
        'join': 1 message was never acked
          for example m[0] at 3: ...
          likely: no collector.ack(tup)
        """
        thing = {MistakeKind.CHANGED: "value", MistakeKind.RAISED: "call"}.get(self.kind, "message")
        count = f"1 {thing} was" if self.messages == 1 else f"{self.messages:,} {thing}s were"
        return f"{self.component!r}: {count} {self.kind}\n  for example {self.example}\n  likely: {self.likely}"

    def to_json(self) -> dict[str, Any]:
        """Return the mistake as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class Trial:
    """The result of a run without faults."""

    mistakes: tuple[Mistake, ...]
    """The topology's mistakes; empty if a promise is broken, too."""
    unsent: Mapping[str, int]
    """How many messages each component would have sent to a server."""
    is_empty: bool = False
    """Whether no bolt got a tuple, so that nothing was tested."""


def try_once(subject: Subject, seed: int = 0) -> Trial:
    """Run a topology once without faults."""
    seen: list[_Mishaps] = []

    def watch(facts: Facts) -> Checker:
        seen.append(_Mishaps(facts))
        return seen[0]

    run = run_seed(subject, seed, (), stories=True, state=False, watch=watch)
    return Trial(() if run.violations else seen[0].mistakes(), run.unsent, not seen[0].delivered)


class _Mishaps(Checker):
    """Records each message that was not acked at its first attempt, and the responsible component."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._deliveries: dict[int, tuple[int, str]] = {}
        self.delivered = False
        """Whether a bolt has got a tuple."""
        self._left: dict[int, list[tuple[int, str]]] = {}
        """For each tree that times out: (task number, values) of its deliveries that were not acked."""
        self._found: dict[tuple[MistakeKind, str, str], dict[Any, tuple[str, bool]]] = {}
        """By kind, component and cause: for each message the example, and whether a task still holds its tuple."""

    def begun(self, plan: MicroBatchPlan, records: Records) -> None:
        """Record the open deliveries of the trees that are about to time out."""
        self._left = {key: self._waiting(key) for key in plan.expired if key in self.facts.trees.open}

    def _waiting(self, key: int) -> list[tuple[int, str]]:
        left = self.facts.trees.open[key]
        return [self._deliveries[id_] for id_ in left if id_ in self._deliveries]

    def committed(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome, verdict: ExpectedVerdict) -> None:
        """Record which task received which tuple."""
        if len(self._deliveries) > VALUES_KEPT_MAX:
            self._deliveries.clear()
        for seen in outcome.sightings:
            self._deliveries.update(seen.deliveries)
            for change in seen.changes:
                cause = "changed what it was given" if change.was_given else "changed what it emitted"
                self._note(MistakeKind.CHANGED, change.component, cause, object(), change.example, held=False)

    def told(self, driver: Driver) -> None:
        """Record the exceptions of spouts' methods."""
        for task in driver.spouts.values():
            for report in task.reports:
                self._note(MistakeKind.RAISED, report.component, MistakeKind.RAISED, object(), report.text, held=False)
            task.reports.clear()

    def promoted(self, driver: Driver, promotion: Promotion, verdict: ExpectedVerdict) -> None:
        """Record which component failed which tuple, and whether any got one."""
        self.delivered = any(metrics.executed for metrics in driver.ledger.metrics.components.values())
        for tree in (*promotion.failed, *promotion.letters_failed):
            if tree.fail.cause == Cause.TIMEOUT:
                self._timed_out(tree)
            else:
                kind = MistakeKind.EXHAUSTED if tree.outcome in EXHAUSTED else MistakeKind.FAILED
                self._note(kind, tree.fail.component, tree.fail.cause, _message(tree), tree.story, held=False)

    def _timed_out(self, tree: FailedTree) -> None:
        held = any(hop.is_answer for hop in tree.hops)
        for number, values in self._left.get(tree.key, [])[:1]:
            component, index = self.facts.subject.topology.task_owner(number)
            example = f"{self._place(tree.key)}: {component}[{index}] got {values} and neither acked nor failed it"
            self._note(MistakeKind.NEVER_ACKED, component, Cause.TIMEOUT, _message(tree), example, held=held)
            return
        self._note(MistakeKind.NEVER_ACKED, tree.fail.component, Cause.TIMEOUT, _message(tree), tree.story, held=held)

    def _place(self, key: int) -> str:
        return self.facts.where(key).removeprefix(f"tree {key:x} of ")

    def _note(self, kind: MistakeKind, component: str, cause: str, message: Any, example: str, *, held: bool) -> None:
        self._found.setdefault((kind, component, cause), {}).setdefault(message, (example, held))

    def mistakes(self) -> tuple[Mistake, ...]:
        """Return the mistakes, those with the most messages first."""
        for key in self.facts.trees.open:
            for number, values in self._waiting(key)[:1]:
                component, index = self.facts.subject.topology.task_owner(number)
                example = f"{self._place(key)}: {component}[{index}] got {values} and neither acked nor failed it"
                self._note(MistakeKind.NEVER_ACKED, component, Cause.TIMEOUT, mix64(key), example, held=False)
        given_up = {
            message for (kind, *_), found in self._found.items() if kind == MistakeKind.EXHAUSTED for message in found
        }
        mistakes = []
        for (kind, component, cause), found in self._found.items():
            left = {m: e for m, e in found.items() if kind != MistakeKind.FAILED or m not in given_up}
            if left:
                if cause == Cause.UNAVAILABLE and component == self.facts.away:
                    kind, cause = MistakeKind.NEVER_TAKEN, MistakeKind.NEVER_TAKEN
                example, held = next(iter(left.values()))
                likely = self._likely(component, cause, held=held)
                mistakes.append(Mistake(kind, component, len(left), example, likely))
        return tuple(sorted(mistakes, key=lambda mistake: -mistake.messages))

    def _likely(self, component: str, cause: str, *, held: bool) -> str:
        spec = self.facts.subject.topology.components.get(component)
        acks_itself = spec is not None and isinstance(spec.component, BasicBolt | AsyncBolt)
        secs = self.facts.subject.topology.config.message_timeout_secs
        if cause != Cause.TIMEOUT:
            return _LIKELY.get(cause, _LIKELY[Cause.EXCEPTION])
        if acks_itself:
            return (
                f"the message takes longer than message_timeout_secs={secs:g}, or a tuple anchored to it is never acked"
            )
        if held:
            return (
                f"it is kept in an attribute longer than message_timeout_secs={secs:g}: ack it sooner (in a tick "
                "tuple, say), give it to KeyValueState and ack it, or raise the timeout"
            )
        return (
            "execute returns without collector.ack(tup) or collector.fail(tup) on one of its ways, or keeps the tuple "
            f"longer than message_timeout_secs={secs:g}: ack on every way, or derive from BasicBolt, which acks itself"
        )


_LIKELY: Mapping[str, str] = {
    Cause.EXCEPTION: (
        "code of the component does not expect this value: handle it, or let such messages become dead letters"
    ),
    MistakeKind.RAISED: (
        "a method of the spout raises: a run reports it and calls the method again; correct what the example names"
    ),
    Cause.EMIT: "what is emitted does not fit the declared outputs: the reason says which and how to mend it",
    Cause.FAIL: "the bolt said so by collector.fail: it is given again, and fails again if nothing has changed",
    Cause.UNREADABLE: (
        "the record, or its timestamp, cannot be read: mend the source, or look at it among the dead letters"
    ),
    "changed what it emitted": (
        "what is emitted is sent when the bolt has worked through its frame, and changes with the object until then: "
        "emit a copy, list(value) or copy.deepcopy(value)"
    ),
    "changed what it was given": (
        "the bolt works in the process of the one that emitted the value, which may hold the same object, as may other "
        "bolts that were given it: change a copy"
    ),
    Cause.UNAVAILABLE: ("the bolt raised Unavailable: the message was retried until the dependency was there"),
    MistakeKind.NEVER_TAKEN: (
        f"the bolt said Unavailable in each of {TRIES_IN_VAIN_MAX} micro-batches in a row, where the simulation ended: "
        f"{STAND_IN}"
    ),
    Cause.KILLED: "the tuple ends its worker process: look at native code, os._exit, and memory",
}


def _message(tree: FailedTree) -> Any:
    """Return the key that all attempts at one message share."""
    task, sequence = split_key(tree.key)
    return (
        (tree.component, tree.source, tree.position) if tree.source is not None else (task, tree.message_id, sequence)
    )


def in_words(subject: Subject, trial: Trial) -> str:
    """Return the text about a trial; empty if there is nothing to report."""
    lines = []
    if trial.is_empty:
        lines.append("no bolt got a tuple, so nothing was tested: is there anything to read, or do you need --feed?")
    if trial.mistakes:
        count = len(trial.mistakes)
        things = "one thing that looks like a mistake" if count == 1 else f"{count} things that look like mistakes"
        lines.append(
            f"with nothing going wrong around it the topology does {things} (no promise is broken by that; of each "
            f"spout at most {subject.messages_max:,} messages were read):"
        )
        lines += [mistake.words for mistake in trial.mistakes]
    for component, count in trial.unsent.items():
        kind = type(subject.topology.components[component].component).__name__
        messages = "1 message" if count == 1 else f"{count:,} messages"
        lines.append(f"{kind} {component!r}: {messages} not sent: simulate sends nothing")
    return "\n".join(lines)
