"""What becomes of a tuple, on each engine: its tree, its time, its story, its dead letter, and trees of a bolt.

One topology runs all parts to their end, once for each engine; each test looks at one part.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.api.dead_letters import RawMessage
from sparkbolt.api.story import root_text
from sparkbolt.connectors.files.dead_letter_files import LettersRead, read_letters
from sparkbolt.driver.ledger.ledger import FailedTree, Story
from sparkbolt.faces.cli import main
from tests.contract.conftest import Begin
from tests.contract.engines import Engine
from tests.contract.keeping import TIMEOUT_SECS
from tests.contract.lettered import NOT_A_NUMBER, NUMBERS, POISON
from tests.contract.parts import ACTIONS
from tests.contract.starting import BEHIND, STARTED
from tests.contract.telling import TOLD
from tests.contract.topologies import tracked
from tests.contract.tracking import DIAMONDS, GROUPINGS, QUEUED, TRIED


@pytest.fixture(scope="module")
def ended(begin: Begin) -> Iterator[Engine]:
    """A restart while trees that a bolt started are open, then everything to its end."""
    with begin(tracked) as engine:
        engine.await_all({"a bolt has started trees": lambda: engine.of("gathers").pending > 0})
        engine.restart()
        engine.begin_phase()
        engine.await_all({"every part ends": engine.finished})
        yield engine


@dataclass
class Again:
    """A topology that has ended and is started again, and what it had left when it ended."""

    engine: Engine
    stories: tuple[list[FailedTree], list[Story]]
    letters: bytes
    buried: int


@pytest.fixture(scope="module")
def again(ended: Engine) -> Again:
    stories, letters = ended.stories(), Path(ended.directory, "dead.jsonl").read_bytes()
    buried = len(ended.notes("buried"))
    ended.begin_phase()
    ended.restart()
    return Again(ended, stories, letters, buried)


@pytest.mark.slow
def test_every_part_finishes(ended: Engine) -> None:
    assert ended.missed == [], (ended.metrics(), ended.failed)


# Trees.


@pytest.mark.parametrize("action", ACTIONS)
def test_a_tree_completes_or_fails_according_to_its_bolt(ended: Engine, action: str) -> None:
    expected = ACTIONS[action]
    tree = ended.failures_of("messages").get(list(ACTIONS).index(action))
    if expected is None:
        assert tree is None
    else:
        assert tree is not None
        cause, component, reason = expected
        assert (tree.fail.cause, tree.fail.component) == (cause, component)
        assert reason in tree.fail.reason
        assert f"failed by {component}[" in tree.story


def test_every_message_is_acked_or_failed_and_none_twice(ended: Engine) -> None:
    failed = sum(expected is not None for expected in ACTIONS.values())
    metrics = ended.of("messages")
    assert (metrics.acked, metrics.failed, metrics.pending) == (len(ACTIONS) - failed, failed, 0)


def test_a_second_ack_is_ignored_and_reported(ended: Engine) -> None:
    ignored = [report.text for report in ended.reports if "second call was ignored" in report.text]
    assert [text.split(" was ", 1)[1].split(":")[0] for text in ignored] == [
        "acked after it had been acked",
        "acked after it had been failed",
    ]


def test_an_error_is_reported_except_for_a_failed_exception(ended: Engine) -> None:
    texts = [report.text for report in ended.reports if report.component == "deeds"]
    assert "ValueError: on purpose" in texts
    assert texts.count("on purpose") == 1, "of the two that say this only the ReportedFailedException is reported"


def test_diamonds_of_all_groupings_complete(ended: Engine) -> None:
    metrics = ended.of("diamonds")
    assert (metrics.acked, metrics.failed, metrics.pending) == (DIAMONDS, 0, 0)


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_a_grouping_copies_values_for_all_and_when_a_custom_grouping_names_a_task_twice(
    ended: Engine, grouping: str
) -> None:
    copies = 2 if grouping in ("all", "custom") else 1
    assert ended.of(f"meet-{grouping}").executed == 2 * DIAMONDS * copies


def test_all_kinds_of_bolts_emit_anchored_and_ack(ended: Engine) -> None:
    assert sorted(n for [n] in ended.notes("from-function")) == list(range(30))
    assert sorted(n for [n] in ended.notes("from-doubled")) == sorted([2 * n for n in range(30)] * 2)
    assert sorted(n for [n] in ended.notes("from-concurrent")) == [n for n in range(30) if n not in (7, 8)]
    assert sorted(n for [n] in ended.notes("from-batched")) == list(range(30))
    assert sorted(ended.failures_of("numbers")) == [7, 8]
    assert ended.of("numbers").acked == 28


def test_flush_is_called_once_per_task_and_micro_batch(ended: Engine) -> None:
    names = [(micro_batch_id, task) for micro_batch_id, task in ended.notes("flushed")]
    assert names
    assert len(set(names)) == len(names)


def test_coroutines_of_a_frame_run_at_once_up_to_the_limit(ended: Engine) -> None:
    assert max(running for [running] in ended.notes("running")) == 5


def test_a_failed_message_is_retried_and_then_given_up(ended: Engine) -> None:
    attempts = {n: 3 if n % 2 else 2 if n % 4 == 2 else 1 for n in range(TRIED)}
    assert Counter(n for n, _ in ended.notes("tries")) == attempts
    assert sorted(map(tuple, ended.notes("tries"))) == [(n, i + 1) for n in attempts for i in range(attempts[n])]
    outcomes = Counter(tree.outcome for tree in ended.failed if tree.component == "tried")
    assert outcomes == {"dead_letter": TRIED // 2, "retry": TRIED + TRIED // 4}
    assert ended.of("tried").given_up == ended.of("tried").dead_letters == TRIED // 2
    last = ended.failures_of("tried")[1]
    assert last.attempt == 3
    assert "attempt 3; failed by tries[" in last.story


def test_a_spout_gets_one_ack_or_fail_for_each_message(ended: Engine) -> None:
    heard = Counter(map(tuple, ended.notes("queue")))
    acks = {("ack", n): 1 for n in range(QUEUED)}
    assert heard == {**acks, **{("fail", n): 1 for n in range(0, QUEUED, 3)}}


def test_a_tuple_without_an_id_is_processed_and_no_spout_is_notified(ended: Engine) -> None:
    assert [values for values in ended.notes("moody") if values[0] == -1] == [[-1, 1]]
    assert ["ack", None] not in ended.notes("queue")


# Time.


def test_a_tree_that_is_never_acked_times_out_and_its_story_names_its_holder(ended: Engine) -> None:
    tree = ended.failures_of("timed")[0]
    assert tree.fail.cause == "timeout"
    assert "held by waits[0]" in tree.story
    assert float(tree.fail.reason.split("after ")[1].split(" s")[0]) >= TIMEOUT_SECS


def test_a_tree_with_a_timeout_reset_lives_longer_than_the_timeout(ended: Engine) -> None:
    assert list(ended.failures_of("timed")) == [0]
    assert ended.of("timed").acked == 1


def test_ticks_arrive_at_their_times(ended: Engine) -> None:
    ticks = [now_ms for [now_ms] in ended.notes("from-waits")]
    assert len(ticks) >= 2
    # A tick may come late, and the one behind it in time; but none comes before its time.
    for first, earlier in enumerate(ticks):
        assert all(later - earlier > 1000 * periods for periods, later in enumerate(ticks[first + 1 :]))


# Trees that a bolt starts.


EACH = STARTED // len(BEHIND)
ACKED = sum(actions[-1] == "ack" for actions in BEHIND.values()) * EACH
GIVEN_UP_VALUES = STARTED - ACKED


def test_each_value_is_acked_once_or_given_up(ended: Engine) -> None:
    before, after = (counts["gathers"] for counts in ended.restarts[0])
    assert before.pending > 0
    assert after.pending + after.failed > 0, "they are open, or timed out meanwhile"
    metrics = ended.of("gathers")
    assert (metrics.acked - STARTED, metrics.given_up, metrics.pending) == (ACKED, GIVEN_UP_VALUES, 0)
    assert ended.of("sown").acked == STARTED, "the spout's trees end where the bolt has them"


def test_a_failed_value_is_retried_until_it_is_acked_or_reaches_the_limit(ended: Engine) -> None:
    expected = {(n, i + 1) for n in range(STARTED) for i in range(len(BEHIND[n % len(BEHIND)]))}
    attempts = Counter(map(tuple, ended.notes("behind")))
    assert set(attempts) == expected
    again = [attempt for attempt, times in attempts.items() if times > 1]
    assert len(again) <= STARTED // 2, "notes of a micro-batch that ran again, at the restart"


def test_a_given_up_value_has_a_story(ended: Engine) -> None:
    trees = [tree for tree in ended.failed if tree.component == "gathers" and tree.outcome == "given_up"]
    assert {tree.attempt for tree in trees} == {3}
    assert Counter(tree.fail.cause for tree in trees) == {"exception": EACH, "timeout": EACH}
    assert all("attempt 3; " in tree.story for tree in trees)
    assert all("held by behind[0]" in tree.story for tree in trees if tree.fail.cause == "timeout")


def test_no_tree_gets_reports_after_its_end(ended: Engine) -> None:
    assert ended.of("gathers").late == 0


# Stories.


def failed_of(engine: Engine, position: int, attempt: int) -> FailedTree:
    trees = [tree for tree in engine.stories()[0] if tree.component == "told"]
    [tree] = [tree for tree in trees if (tree.position, tree.attempt) == (position, attempt)]
    return tree


def traced_of(engine: Engine, position: int) -> Story:
    [story] = [story for story in engine.stories()[1] if (story.component, story.position) == ("told", position)]
    return story


def told_in(tree: FailedTree | Story) -> list[str]:
    """The hops in words, less the numbers of tasks and micro-batches."""
    return [re.sub(r"\[\d\]| in micro-batch \d+", "", hop.words()) for hop in tree.hops]


def test_a_tree_that_fails_immediately_reports_the_line_of_the_failed_tuple(ended: Engine) -> None:
    tree = failed_of(ended, 1, attempt=1)
    assert told_in(tree) == ["started by told", "sent on by words", "failed by trouble"]
    assert tree.hops[-1].values == "{'n': 1, 'k': 2}"
    assert re.fullmatch(r"words\[\d\]", tree.hops[-1].source)
    assert {hop.micro_batch_id for hop in tree.hops} == {tree.started_in} == {tree.ended_in}
    assert {hop.now_ms for hop in tree.hops} == {tree.started_ms}
    assert re.fullmatch(
        r"root [0-9a-f]{16}; told\[0\] numbers@1, attempt 1; sent on by words\[\d\] in micro-batch \d+; "
        r"failed by trouble\[\d\] in micro-batch \d+: ValueError: no 1",
        tree.story,
    )


def test_a_retried_tree_reports_every_hop(ended: Engine) -> None:
    tree = failed_of(ended, 1, attempt=2)
    assert told_in(tree) == [
        "started by told, emitted 1 (n)",
        "acked by words, emitted 3 (n, k)",
        "acked 2 and failed 1 by trouble",
    ]
    assert tree.hops[-1].values == "{'n': 1, 'k': 2}", "the tuple that failed is shown, not the first"
    assert tree.outcome == "dead_letter"


def test_a_tree_that_is_acked_at_its_second_attempt_keeps_its_story(ended: Engine) -> None:
    assert failed_of(ended, 2, attempt=1).outcome == "retry"
    story = traced_of(ended, 2)
    assert (story.state, story.attempt) == ("acked", 2)
    assert told_in(story)[1:] == ["acked by words, emitted 3 (n, k)", "acked 3 by trouble"]
    assert story.ended_in is not None


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_tree_that_times_out_reports_who_still_holds_which_tuples_and_since_when(ended: Engine, attempt: int) -> None:
    tree = failed_of(ended, 3, attempt)
    held = r"held by trouble\[\d\] since micro-batch (\d+): \{'n': 3, 'k': 0\} from words\[\d\]"
    match = re.search(held, tree.story)
    assert match is not None, tree.story
    assert int(match[1]) == tree.started_in
    assert tree.fail.cause == "timeout"
    assert ("acked by words" in tree.story) == (attempt == 2)


def test_a_message_selected_by_trace_is_reported_although_it_was_acked(ended: Engine) -> None:
    assert told_in(traced_of(ended, 4)) == [
        "started by told, emitted 1 (n)",
        "acked by words, emitted 3 (n, k)",
        "acked 3 by trouble",
    ]
    assert traced_of(ended, 4).attempt == 1


def test_no_story_is_kept_for_messages_acked_at_once(ended: Engine) -> None:
    failed, traced = ended.stories()
    kept = {tree.position for tree in [*failed, *traced] if tree.component == "told"}
    assert kept == set(range(TOLD)) - {0, 5}


# Dead letters.


GIVEN_UP = {*POISON, 9, NOT_A_NUMBER}


def filed(engine: Engine) -> LettersRead:
    return read_letters(Path(engine.directory, "dead.jsonl"))


def failures(engine: Engine, spout: str) -> dict[int | None, list[str]]:
    """The roots of the failed attempts at each position, in order."""
    found: dict[int | None, list[str]] = {}
    for tree in engine.failed:
        if tree.component == spout and not tree.letter:
            found.setdefault(tree.position, []).append(root_text(tree.key))
    return found


def test_every_message_that_is_given_up_is_in_the_file_and_no_other(ended: Engine) -> None:
    read = filed(ended)
    assert {letter.position for letter in read.letters} == GIVEN_UP
    assert (read.repeated, read.damaged) == (0, [])
    taken = Counter(n for spout, n in ended.notes("taken") if spout == "filed")
    assert taken == dict.fromkeys(set(range(NUMBERS)) - GIVEN_UP, 1)


def test_a_letter_describes_the_message_and_each_attempt(ended: Engine) -> None:
    [letter] = [letter for letter in filed(ended).letters if letter.position == POISON[0]]
    assert letter.where == f"filed[0] numbers@{POISON[0]}"
    assert (letter.topology, letter.version) == ("tracked", ended.topology.version)
    assert letter.values() == [{"n": POISON[0]}]
    assert letter.raw == RawMessage(str(POISON[0]).encode(), key=b"\xff")
    assert letter.note == ""
    assert [attempt.number for attempt in letter.attempts] == [1, 2]
    assert [attempt.root for attempt in letter.attempts] == failures(ended, "filed")[POISON[0]]
    for attempt in letter.attempts:
        assert (attempt.component, attempt.cause, attempt.reason) == (
            "picky",
            "exception",
            f"ValueError: no {POISON[0]}",
        )
        assert attempt.traceback is not None
        assert "raise ValueError" in attempt.traceback
        assert attempt.started_ms is not None
        assert attempt.started_ms <= attempt.ended_ms


def test_unreadable_record_becomes_a_dead_letter_with_its_data_after_one_attempt(ended: Engine) -> None:
    [letter] = [letter for letter in filed(ended).letters if letter.position == NOT_A_NUMBER]
    assert [(attempt.cause, attempt.reason) for attempt in letter.attempts] == [("unreadable", "not a number")]
    assert (letter.tuples, letter.note) == ((), "not a number")
    assert letter.raw == RawMessage(str(NOT_A_NUMBER).encode(), key=b"\xff")


def test_dead_letters_are_counted_and_are_not_acks(ended: Engine) -> None:
    counts = ended.of("filed")
    assert (counts.given_up, counts.dead_letters) == (len(GIVEN_UP), len(GIVEN_UP))
    assert counts.acked == NUMBERS - len(GIVEN_UP)
    assert counts.failed == 2 * (len(GIVEN_UP) - 1) + 1
    assert (counts.pending, counts.waiting) == (0, 0)


def test_a_letter_is_a_tuple_of_the_stream_with_values_and_story(ended: Engine) -> None:
    buried = [values for attempt, values in ended.notes("buried") if attempt == 1]
    assert sorted(values["story"]["position"] for values in buried) == sorted(GIVEN_UP)
    for values in buried:
        position = values["story"]["position"]
        assert values["n"] == (position if position != NOT_A_NUMBER else None)
        assert [one["root"] for one in values["story"]["attempts"]] == failures(ended, "streamed")[position]


def test_a_letter_that_bolts_refuse_is_retried_and_finally_stored_in_the_checkpoint(ended: Engine) -> None:
    tried = Counter(values["n"] for _, values in ended.notes("buried"))
    assert (tried[5], tried[6], tried[31]) == (1, 2, 2)
    assert [tree for tree in ended.failed if tree.letter] == []
    [kept] = [letter for letter in ended.letters() if letter.component == "streamed"]
    assert (kept.component, kept.position, kept.values()) == ("streamed", 31, [{"n": 31}])
    counts = ended.of("streamed")
    assert (counts.given_up, counts.dead_letters) == (len(GIVEN_UP), len(GIVEN_UP))


def test_a_failed_sink_is_retried_and_the_letters_keep_their_ids(ended: Engine) -> None:
    broke = [count for [count] in ended.notes("broke")]
    letters = [body for _, body in ended.notes("letters")]
    assert Counter(letter["id"] for letter in letters).total() == 3 + broke[0], "each again that was in the failed try"
    assert {letter["message_id"] for letter in letters} == {"'job-5'", "'job-6'", "'job-9'"}
    assert len({letter["id"] for letter in letters}) == 3
    assert any("dead letters could not be written" in report.text for report in ended.reports)
    assert ended.of("jobs").dead_letters == 3


def test_a_spout_is_notified_that_a_message_is_done_when_its_letter_is_written(ended: Engine) -> None:
    heard: dict[str, Any] = {name: (what, *written) for what, name, *written in ended.notes("jobs")}
    assert len(ended.notes("jobs")) == 10
    assert {name for name, (_, written) in heard.items() if written} == {"job-5", "job-6", "job-9"}
    assert {what for what, _ in heard.values()} == {"ack"}
    [letter] = [body for name, body in ended.notes("letters") if name == "'job-9'"][-1:]
    assert (letter["stream"], letter["fields"], letter["tuples"]) == ("other", ["n", "why"], [[9, "other"]])


# After another start.


def test_nothing_is_written_again_after_a_restart(again: Again) -> None:
    assert again.engine.of("filed").dead_letters == len(GIVEN_UP)
    assert Path(again.engine.directory, "dead.jsonl").read_bytes() == again.letters
    assert len(again.engine.notes("buried")) == again.buried


def test_stories_survive_the_driver_and_log_compaction(again: Again) -> None:
    assert again.engine.stories() == again.stories


def run(capsys: Any, *arguments: str) -> list[Any]:
    assert main(arguments) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_command_line_shows_the_same_from_the_log(again: Again, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(again.engine.checkpoint())
    trees, _ = again.stories
    listed = run(capsys, "errors", directory, "--json", "--last", "1000")
    assert [one["root"] for one in listed] == [root_text(tree.key) for tree in trees]
    of_told = [(tree, one) for tree, one in zip(trees, listed, strict=True) if tree.component == "told"]
    assert len(of_told) == 5
    for tree, one in of_told:
        [told] = run(capsys, "explain", one["root"], "--checkpoint", directory, "--json")
        others = told.pop("other_attempts")
        assert told == one == json.loads(json.dumps(tree.to_story().to_json()))
        assert [other["attempt"] for other in others] == [3 - tree.attempt]
