"""The transaction: a micro-batch counts only with what succeeds in it (``Config(transactional=True)``).

Rule 1: an execution in which the tuples of a tree failed, or in which a tree is not complete at its end, is never
staged. All its failures are collected, they are made durable as ``aborts/n``, and n runs again, from the state before
it, without the messages of these trees.
Rule 2: the execution that is staged brings the failures of all aborted ones: their messages are retried or given up as
their policy says, as if they had failed in it. Its source starts and fails their trees, so that ranges of acked trees
have no holes, but emits none of their tuples.
Rule 3: each repeat leaves out at least one more message, so there is an end. After ``REPEATS_WHOLE`` repeats each
further one also reads half as much of each entry and postpones the rest, which is no attempt: a bolt that fails another
tuple each time ends up with a micro-batch that is small enough.
Rule 4: the trees that bolts start are numbered in the order in which they start, which may change with the messages
that the spouts leave out. So as long as trees of spouts fail, only these are left out; those of bolts are found again.
Rule 5: ``aborts/n`` counts for the plan that it was written for, and for no other plan with this number.
Rule 6: a message that the execution which counts does not read (its range is postponed, or its records went with a
dead life) has no failure of its own.

Prior art: transactional topologies of Storm 0.7, whose batch has to succeed as a whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from sparkbolt.api.causes import NOT_READ, Cause
from sparkbolt.api.metrics import ComponentMetrics
from sparkbolt.api.outage import Health
from sparkbolt.api.reports import ErrorReport, Fail
from sparkbolt.api.story import Hop
from sparkbolt.base.codec import decode, encode
from sparkbolt.base.file_access import Files
from sparkbolt.base.ids import split_key
from sparkbolt.driver.effects import Remove, Write
from sparkbolt.errors import CheckpointError
from sparkbolt.layout.lane import Lane
from sparkbolt.wire.exclusion import Exclusion
from sparkbolt.wire.plan import MicroBatchPlan
from sparkbolt.wire.verdicts import NO_HOLDER, Feedback

FOLDER = "aborts"
REPEATS_WHOLE = 3
"""After this many repeats of a micro-batch, each further one reads half as much."""
_WITHOUT_TUPLES = NOT_READ | {Cause.UNREADABLE, Cause.LETTER}
"""The causes of trees without any tuple: they change nothing, and the micro-batch need not run again for them."""


@dataclass
class Aborts:
    """The aborted executions of one micro-batch."""

    plan_digest: str
    repeats: int = 0
    fails: dict[int, Fail] = field(default_factory=dict)
    """By key of each tree that failed: its first failure."""
    hops: list[Hop] = field(default_factory=list)
    healths: dict[str, Health] = field(default_factory=dict)
    """The work of each bolt in the first execution: later ones do not contain the messages that failed there."""

    @property
    def exclusion(self) -> Exclusion:
        """The messages that the next execution leaves out."""
        return Exclusion(np.array(sorted(self.fails), dtype=np.uint64), max(0, self.repeats - REPEATS_WHOLE))

    def dumps(self) -> bytes:
        """The aborts as bytes."""
        return json.dumps(encode(self), separators=(",", ":")).encode()

    @classmethod
    def loads(cls, data: bytes, name: str) -> Aborts:
        """The inverse of ``dumps``.

        Raises:
            CheckpointError: the bytes are damaged; ``name`` is in the message.
        """
        try:
            return decode(cls, json.loads(data))
        except ValueError as error:
            raise CheckpointError(f"{name} is damaged ({error}): it cannot tell which messages are left out") from error


def aborts_mistakes(files: Files) -> list[str]:
    """The damage in the files of aborted executions, in sentences."""
    wrong = []
    for name in files.names(FOLDER):
        try:
            Aborts.loads(files.read(f"{FOLDER}/{name}") or b"", f"{FOLDER}/{name}")
        except CheckpointError as error:
            wrong.append(str(error))
    return wrong


class Transaction:
    """The executions of the micro-batch in force; not thread safe: the engine calls it under its lock."""

    def __init__(self, lane: Lane, files: Files) -> None:
        """Begin without a micro-batch; ``files`` are those of the checkpoint, and are only read."""
        self._lane = lane
        self._files = files
        self._aborts = Aborts("")
        self._tidy = False
        self._reports: list[ErrorReport] = []
        """The errors that aborted executions of this life reported."""
        self._errors: Counter[str] = Counter()
        """By component: how many errors these had."""

    @property
    def repeats(self) -> int:
        """How many executions of the micro-batch in force were aborted."""
        return self._aborts.repeats

    def begin(self, plan: MicroBatchPlan) -> Exclusion:
        """The messages that the first execution of a plan in this life leaves out, from the aborts of earlier lives."""
        digest = blake2b(plan.dumps().encode(), digest_size=16).hexdigest()
        self._reports, self._errors = [], Counter()
        self._aborts = Aborts(digest)
        name = f"{FOLDER}/{plan.micro_batch_id}"
        data = self._files.read(name)
        if data is not None:
            known = Aborts.loads(data, name)
            if known.plan_digest == digest:
                self._aborts = known
        return self._aborts.exclusion

    def judge(self, plan: MicroBatchPlan, feedback: Feedback) -> Exclusion | None:
        """Judge an execution: None if it counts; otherwise ``abort`` it, and leave this out next time."""
        found = {fail.key: fail for fail in self._found(plan, feedback) if fail.key not in self._aborts.fails}
        if not found:
            return None
        aborts = self._aborts
        if not aborts.repeats:
            aborts.healths = dict(feedback.healths)
        aborts.repeats += 1
        if any(map(self._is_of_spout, found)):
            found = {key: fail for key, fail in found.items() if self._is_of_spout(key)}
            aborts.fails = {key: fail for key, fail in aborts.fails.items() if self._is_of_spout(key)}
        aborts.fails.update(sorted(found.items()))
        aborts.hops += [hop for hop in feedback.hops if hop.key in found]
        self._reports += feedback.reports
        self._errors.update({name: counts.errors for name, counts in feedback.metrics.items() if counts.errors})
        return aborts.exclusion

    def abort(self, micro_batch_id: int) -> Write:
        """Make the executions of a micro-batch that do not count durable, before it is executed again."""
        return Write(f"{FOLDER}/{micro_batch_id}", self._aborts.dumps())

    def settle(self, feedback: Feedback) -> None:
        """Put the failures of the aborted executions into the feedback of the one that counts.

        The source has started and failed each tree that was left out. One that it has not started is read later, or
        went with a dead life; one that failed there in another way may represent a range that is read later.
        """
        aborts, verdicts = self._aborts, feedback.verdicts
        if not aborts.repeats:
            return
        left_out = [fail.key for fail in verdicts.failed if fail.cause == Cause.EXCLUDED]
        own = {key: aborts.fails[key] for key in left_out}
        verdicts.failed = [own.get(fail.key, fail) for fail in verdicts.failed]
        feedback.hops = [*feedback.hops, *(hop for hop in aborts.hops if hop.key in own)]
        feedback.reports = [*self._reports, *feedback.reports]
        feedback.healths = {**feedback.healths, **aborts.healths}
        for component, errors in self._errors.items():
            feedback.metrics.setdefault(component, ComponentMetrics()).errors += errors
        for fail in own.values():
            if not self._lane.topology.components[fail.component].is_spout:
                feedback.metrics.setdefault(fail.component, ComponentMetrics()).failed += 1

    def forget(self, micro_batch_id: int) -> Iterator[Remove]:
        """Remove the files that a promoted micro-batch no longer needs."""
        if self._aborts.repeats:
            yield Remove(f"{FOLDER}/{micro_batch_id}")
            self._aborts = Aborts("")

    def outdated(self, micro_batch_id: int) -> Iterator[Remove]:
        """Once in a life: remove the files of lives that died between a commit and its promotion."""
        if not self._tidy:
            for name in self._files.names(FOLDER):
                if name.isdigit() and int(name) < micro_batch_id:
                    yield Remove(f"{FOLDER}/{name}")
            self._tidy = True

    def _is_of_spout(self, key: int) -> bool:
        component, _ = self._lane.topology.task_owner(split_key(key)[0])
        return self._lane.topology.components[component].is_spout

    def _found(self, plan: MicroBatchPlan, feedback: Feedback) -> Iterable[Fail]:
        """The trees because of which an execution does not count."""
        verdicts = feedback.verdicts
        began = set(verdicts.init_failed.tolist())
        yield from (fail for fail in verdicts.failed if fail.key in began and fail.cause not in _WITHOUT_TUPLES)
        new = verdicts.open_new
        for key, holder in zip(verdicts.open_keys[new].tolist(), verdicts.open_holders[new].tolist(), strict=True):
            task = holder if holder != NO_HOLDER else split_key(key)[0]
            component, index = self._lane.topology.task_owner(task)
            who = f"{component}[{index}] holds it" if holder != NO_HOLDER else "no task has reported a hold"
            reason = (
                f"its tree is not complete at the end of micro-batch {plan.micro_batch_id} ({who}): in a "
                "transactional topology no tuple is held over micro-batches; ack or fail each tuple in execute or flush"
            )
            yield Fail(key, component, index, Cause.HELD, reason, plan.micro_batch_id)
