"""Bugs planted in dead letters and in outages: the simulator finds each of them (see ``test_planted``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparkbolt.base.ids import AGAIN
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.ledger import ledger_log, messages
from sparkbolt.driver.ledger.message_log import MessageLog
from sparkbolt.driver.ledger.messages import Messages as KnownMessages
from sparkbolt.driver.ledger.retry_schedule import RetrySchedule
from sparkbolt.driver.returned_letters import RETURNED_FOLDER, ReturnedLetters
from sparkbolt.driver.spout_buffer import SpoutBuffer
from sparkbolt.sim.subject import Subject, subject_of
from sparkbolt.worker.dead_letter_reader import LetterReader
from tests.sim.planting import Patch, hunt
from tests.sim.planting import patch as patch
from tests.sim.random_topologies import depending_topology, lettered_topology


def a_letter_counts_though_its_sink_failed(patch: Patch) -> None:
    def hopeful(self: LetterReader, sequences: Any, text: str, failure: Any) -> None:
        self._stage.start_trees(self._keys(sequences), np.zeros(len(sequences), dtype=np.uint64))

    patch.setattr(LetterReader, "_fail_letters", hopeful)


def what_is_given_up_is_finished_before_its_letter(patch: Patch) -> None:
    wait = MessageLog.wait

    def hasty(self: MessageLog, retry: Any, **options: Any) -> None:
        if retry.letter is None:
            wait(self, retry, **options)

    patch.setattr(MessageLog, "wait", hasty)


def a_queue_hears_before_the_letter_is_written(patch: Patch) -> None:
    fail = SpoutBuffer.fail

    def hasty(self: SpoutBuffer, tree: Any) -> None:
        fail(self, tree)
        if tree.outcome == "dead_letter" and not tree.letter:
            self.acks.append(self.unfinished[tree.position].message_id)

    patch.setattr(SpoutBuffer, "fail", hasty)


def letters_and_messages_share_their_sequences(patch: Patch) -> None:
    patch.setattr(KnownMessages, "next_letter", lambda self, task: AGAIN)


def compaction_forgets_letters(patch: Patch) -> None:
    dump = ledger_log.dump_snapshot

    def forgetful(state: Any) -> bytes:
        logs = [replace(of, retries=[r for r in of.retries if r.letter is None]) for of in state.messages.logs]
        return dump(replace(state, messages=replace(state.messages, logs=logs)))

    patch.setattr(ledger_log, "dump_snapshot", forgetful)


def the_letter_of_another_message_is_written(patch: Patch) -> None:
    found = LetterReader._found

    def mistaken(self: LetterReader, given_up: Any, range_: Any, sequence: int) -> Any:
        if range_.start == 0:
            return found(self, given_up, range_, sequence)
        return found(self, given_up, replace(range_, start=range_.start - 1, end=range_.start), sequence - 1)

    patch.setattr(LetterReader, "_found", mistaken)


def histories_are_never_forgotten(patch: Patch) -> None:
    patch.setattr(RetrySchedule, "settle", lambda self, open_among: None)


LETTER_PLANTS = (
    a_letter_counts_though_its_sink_failed,
    what_is_given_up_is_finished_before_its_letter,
    a_queue_hears_before_the_letter_is_written,
    letters_and_messages_share_their_sequences,
    compaction_forgets_letters,
    the_letter_of_another_message_is_written,
    histories_are_never_forgotten,
)


def hunt_lettered(*, give_backs: int) -> tuple[int, str, str]:
    lettered: dict[int, Subject] = {}
    return hunt(
        lambda number: lettered.get(number) or lettered.setdefault(number, subject_of(*lettered_topology(number))),
        give_backs=give_backs,
    )


@pytest.mark.campaign
@pytest.mark.parametrize("plant", LETTER_PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_in_dead_letters_is_found(plant: Callable[[Patch], None], patch: Patch) -> None:
    plant(patch)
    needed, promise, words = hunt_lettered(give_backs=0)
    print(f"{plant.__name__}: {needed} seeds; {promise}: {words}")


def a_request_is_removed_before_its_plan_is_promoted(patch: Patch) -> None:
    look = ReturnedLetters.look

    def hasty(self: ReturnedLetters, files: Any) -> None:
        look(self, files)
        for name in files.names(RETURNED_FOLDER):
            files.remove(f"{RETURNED_FOLDER}/{name}")

    patch.setattr(ReturnedLetters, "look", hasty)


def a_request_for_an_unfinished_message_is_lost(patch: Patch) -> None:
    patch.setattr(ReturnedLetters, "settle", lambda self, lines: self._waiting.clear())


def a_request_is_taken_again_in_the_next_life(patch: Patch) -> None:
    init = ReturnedLetters.__init__

    def forgetful(self: ReturnedLetters, lane: Any, ledger: Any) -> None:
        init(self, lane, ledger)
        ledger.messages.returned.clear()

    patch.setattr(ReturnedLetters, "__init__", forgetful)


def attempts_begin_anew_with_a_give_back(patch: Patch) -> None:
    give_back = KnownMessages._give_back
    patch.setattr(
        KnownMessages, "_give_back", lambda self, letter, now_ms: give_back(self, replace(letter, attempts=()), now_ms)
    )


def returned_letters_of_a_queue_die_with_their_life(patch: Patch) -> None:
    patch.setattr(MessageLog, "wait_again", lambda self, trees: None)


def a_message_without_an_ack_is_given_back_twice(patch: Patch) -> None:
    due = RetrySchedule.due

    def twice(self: RetrySchedule, *limits: Any, **more: Any) -> Any:
        for retry in due(self, *limits, **more):
            yield retry
            if retry.record is not None and retry.letter is None:
                yield retry

    patch.setattr(RetrySchedule, "due", twice)


RETURN_PLANTS = (
    a_request_is_removed_before_its_plan_is_promoted,
    a_request_for_an_unfinished_message_is_lost,
    a_request_is_taken_again_in_the_next_life,
    attempts_begin_anew_with_a_give_back,
    returned_letters_of_a_queue_die_with_their_life,
    a_message_without_an_ack_is_given_back_twice,
)


@pytest.mark.campaign
@pytest.mark.parametrize("plant", RETURN_PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_in_returned_letters_is_found(plant: Callable[[Patch], None], patch: Patch) -> None:
    plant(patch)
    needed, promise, words = hunt_lettered(give_backs=12)
    print(f"{plant.__name__}: {needed} seeds; {promise}: {words}")


def an_outage_costs_attempts(patch: Patch) -> None:
    decide = messages.decide

    def strict(*given: Any, forgiven_ms: int | None = None, **more: Any) -> Any:
        return decide(*given, **more)

    patch.setattr(messages, "decide", strict)


def a_snapshot_forgets_outages(patch: Patch) -> None:
    dump = ledger_log.dump_snapshot
    patch.setattr(ledger_log, "dump_snapshot", lambda state: dump(replace(state, outages={})))


def spouts_go_on_at_full_speed(patch: Patch) -> None:
    patch.setattr(Coordinator, "_rooms", lambda self, ready_ms: {})


OUTAGE_PLANTS = (an_outage_costs_attempts, a_snapshot_forgets_outages, spouts_go_on_at_full_speed)


@pytest.mark.campaign
@pytest.mark.parametrize("plant", OUTAGE_PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_in_outages_is_found(plant: Callable[[Patch], None], patch: Patch) -> None:
    plant(patch)
    depending: dict[int, Subject] = {}
    needed, promise, words = hunt(
        lambda number: depending.get(number) or depending.setdefault(number, subject_of(*depending_topology(number)))
    )
    print(f"{plant.__name__}: {needed} seeds; {promise}: {words}")
