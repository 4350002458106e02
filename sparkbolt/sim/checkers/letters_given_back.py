"""Letters given back: checks that each request of an operator is answered once, and that its message is finished again.

The messages and their trees are those of the committed plans; the requests are those of the simulated operator.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkbolt.api.components import Spout
from sparkbolt.api.dead_letters import ExhaustedMessage
from sparkbolt.driver.returned_letters import RETURNED_FOLDER, returned_of
from sparkbolt.sim.checkers.base import Checker, Facts
from sparkbolt.sim.checkers.trees import ExpectedVerdict
from sparkbolt.sim.driver import Driver
from sparkbolt.sim.executors import MicroBatchOutcome
from sparkbolt.wire.plan import Entry, MicroBatchPlan
from sparkbolt.wire.returned import ReturnedLetter

MessageAt = tuple[int, str, int]
"""(task number, source, position)."""


@dataclass
class _Turn:
    """A message from its give-back until it is acked, or a dead letter again."""

    letter: ReturnedLetter
    attempt: int = 0
    """The newest attempt that was emitted since."""
    key: int | None = None
    """The open tree of that attempt; None if it waits."""
    repeats: bool = True
    """Whether the newest attempt may be emitted again: it was not emitted yet, or costs nothing, or its tree was
    lost."""


class LettersComeBack(Checker):
    """A letter that is given back is emitted again, once an attempt, until it is acked or a letter with more attempts.

    No request is lost, and none has an effect twice.
    """

    promise = "a letter given back is a message again"

    def __init__(self, facts: Facts) -> None:
        """Start without messages."""
        super().__init__(facts)
        self._turns: dict[MessageAt, _Turn] = {}
        self._letters: dict[int, MessageAt] = {}
        """Open trees of the next dead letters of these messages."""
        self._answered: set[tuple[str, int]] = set()
        self._queued = {
            number
            for spec in facts.subject.topology.spouts
            if isinstance(spec.component, Spout)
            for number in facts.subject.topology.tasks(spec.id)
        }

    def life_began(self, driver: Driver) -> None:
        """The trees of a ``Spout`` are lost with its life; returned letters wait for the same attempt again."""
        for (task, _, _), turn in self._turns.items():
            if task in self._queued:
                turn.key, turn.repeats = None, turn.repeats or turn.key is not None
        self._letters = {key: message for key, message in self._letters.items() if message[0] not in self._queued}

    def committed(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome, verdict: ExpectedVerdict) -> None:
        """Follow the messages that were given back."""
        if not self.facts.requests:
            return
        unfinished = set(self._turns)
        for entry in plan.entries:
            if entry.records is not None:
                self._emitted(entry)
            elif entry.letters is not None and entry.source is not None:
                self._lettered(entry)
        acked = set(verdict.acked.tolist())
        for message, turn in list(self._turns.items()):
            if turn.key in acked:
                del self._turns[message]
            elif turn.key in verdict.failed:
                forgiven = self.facts.forgiven(turn.key)
                turn.key, turn.repeats = None, forgiven is not False
        for key, message in list(self._letters.items()):
            if key in acked:
                self._turns.pop(message, None)
            if key in acked or key in verdict.failed:
                del self._letters[key]
        self._taken(plan, unfinished)

    def _emitted(self, entry: Entry) -> None:
        for place, position in enumerate(entry.positions or ()):
            key, turn = entry.first_key + place, self._turns.get((entry.task, str(entry.source), position))
            if turn is None:
                self.broken(f"{self.facts.where(key)} is emitted again, which nobody has asked for", key)
            elif turn.key is not None:
                self.broken(f"{self.facts.where(key)} is emitted again while its tree {turn.key:x} is open", key)
            elif entry.attempt != turn.attempt + 1 and not (turn.repeats and entry.attempt == turn.attempt):
                self.broken(f"{self.facts.where(key)} is emitted after attempt {turn.attempt}", key)
            else:
                turn.attempt, turn.key, turn.repeats = entry.attempt, key, False

    def _lettered(self, entry: Entry) -> None:
        """Check that a message which becomes a dead letter again has its earlier attempts, and more."""
        for place, text in enumerate(entry.letters or ()):
            exhausted, key = ExhaustedMessage.loads(text), entry.first_key + place
            message = entry.task, str(entry.source), entry.position_of(entry.base + place)
            turn = self._turns.get(message)
            if exhausted.record is None or turn is None:
                continue
            self._letters[key] = message
            before, count = turn.letter, len(exhausted.attempts) + exhausted.attempts_left_out
            known = len(before.attempts) + before.attempts_left_out
            if count <= known or exhausted.attempts[0] != before.attempts[0]:
                self.broken(
                    f"{self.facts.where(key)}: its dead letter has {count} attempts from {exhausted.attempts[0].root} "
                    f"on; it had {known} from {before.attempts[0].root} on when it was given back",
                    key,
                )

    def _taken(self, plan: MicroBatchPlan, unfinished: set[MessageAt]) -> None:
        """Let the messages wait that a committed plan has taken, and check the requests that it answers.

        Those for messages that were ``unfinished`` before it have no effect.
        """
        for letter in plan.returned:
            message = letter.task, letter.source, letter.position
            if message in self._turns:
                self.broken(f"micro-batch {plan.micro_batch_id} gives {message} back, which is not finished")
            if letter.end is None:
                self._turns[message] = _Turn(letter)
        for place in plan.returned_from:
            request = self.facts.requests.get(place)
            if request is None or place in self._answered:
                how = "nobody has made" if request is None else "was answered before"
                self.broken(f"micro-batch {plan.micro_batch_id} answers request {place}, which {how}")
                continue
            self._answered.add(place)
            letter = returned_of(self.facts.subject.lane, request, edited=False)
            message = letter.task, letter.source, letter.position
            if letter.end is None and message not in unfinished and message not in self._turns:
                self.broken(f"micro-batch {plan.micro_batch_id} answers request {place}, and gives nothing back")

    def ended(self, driver: Driver) -> None:
        """Check that all requests are answered, all messages are finished, and no file is left."""
        for place in sorted(self.facts.requests.keys() - self._answered)[:1]:
            letter = self.facts.requests[place]
            self.broken(f"all is finished, but the dead letter of {letter.where} was not given back: request {place}")
        for message, turn in self._turns.items():
            if turn.key is None or turn.key not in self.facts.trees.open:
                self.broken(f"all is finished, but {message} was given back, and is neither acked nor a dead letter")
                break
        for name in driver.files.names(RETURNED_FOLDER)[:1]:
            self.broken(f"all is finished, but the request {name} is still in the checkpoint")
