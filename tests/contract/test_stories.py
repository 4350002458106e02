"""Why did this tuple fail: what is told of failed, late and traced trees, on both engines, while they run and after."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.cli import main
from sparkbolt.core.driver.ledger.ledger import FailedTree, Story
from sparkbolt.core.model.story import root_text
from tests.contract.conftest import Begin
from tests.contract.engines import Engine
from tests.contract.telling import TOLD, told


@dataclass
class Ended:
    """What was known at the end, before and after a restart, and where it is durable."""

    engine: Engine
    before: tuple[list[FailedTree], list[Story]]
    checkpoint: Path

    def failed(self, position: int, attempt: int) -> FailedTree:
        [tree] = [t for t in self.before[0] if (t.position, t.attempt) == (position, attempt)]
        return tree

    def traced(self, position: int) -> Story:
        [story] = [story for story in self.before[1] if story.position == position]
        return story


@pytest.fixture(scope="module")
def ended(begin: Begin) -> Iterator[Ended]:
    with begin(told) as engine:
        engine.until_finished()
        before = engine.stories()
        engine.restart()
        yield Ended(engine, before, engine.checkpoint())


def told_in(tree: FailedTree | Story) -> list[str]:
    """The hops in words, less the numbers of tasks and micro-batches."""
    return [re.sub(r"\[\d\]| in micro-batch \d+", "", hop.words()) for hop in tree.hops]


def test_a_tree_that_fails_at_once_tells_the_line_of_the_tuple_that_failed(ended: Ended) -> None:
    tree = ended.failed(1, attempt=1)
    assert told_in(tree) == ["started by numbers", "sent on by words", "failed by trouble"]
    assert tree.hops[-1].values == "{'n': 1, 'k': 2}"
    assert re.fullmatch(r"words\[\d\]", tree.hops[-1].source)
    assert {hop.micro_batch_id for hop in tree.hops} == {tree.started_in} == {tree.ended_in}
    assert {hop.now_ms for hop in tree.hops} == {tree.started_ms}
    assert re.fullmatch(
        r"root [0-9a-f]{16}; numbers\[0\] numbers@1, attempt 1; sent on by words\[\d\] in micro-batch \d+; "
        r"failed by trouble\[\d\] in micro-batch \d+: ValueError: no 1",
        tree.story,
    )


def test_a_tree_that_is_given_again_tells_every_hop(ended: Ended) -> None:
    tree = ended.failed(1, attempt=2)
    assert told_in(tree) == [
        "started by numbers, emitted 1 (n)",
        "acked by words, emitted 3 (n, k)",
        "acked 2 and failed 1 by trouble",
    ]
    assert tree.hops[-1].values == "{'n': 1, 'k': 2}", "the tuple that failed is shown, not the first"
    assert tree.outcome == "dead_letter"


def test_a_tree_that_is_acked_at_its_second_attempt_keeps_its_story(ended: Ended) -> None:
    assert ended.failed(2, attempt=1).outcome == "retry"
    story = ended.traced(2)
    assert (story.state, story.attempt) == ("acked", 2)
    assert told_in(story)[1:] == ["acked by words, emitted 3 (n, k)", "acked 3 by trouble"]
    assert story.ended_in is not None


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_tree_that_times_out_tells_who_still_holds_what_and_since_when(ended: Ended, attempt: int) -> None:
    tree = ended.failed(3, attempt)
    held = r"held by trouble\[\d\] since micro-batch (\d+): \{'n': 3, 'k': 0\} from words\[\d\]"
    match = re.search(held, tree.story)
    assert match is not None, tree.story
    assert int(match[1]) == tree.started_in
    assert tree.fail.cause == "timeout"
    assert ("acked by words" in tree.story) == (attempt == 2)


def test_a_message_that_trace_chose_is_told_though_it_was_acked(ended: Ended) -> None:
    assert told_in(ended.traced(4)) == [
        "started by numbers, emitted 1 (n)",
        "acked by words, emitted 3 (n, k)",
        "acked 3 by trouble",
    ]
    assert ended.traced(4).attempt == 1


def test_of_messages_that_were_acked_at_once_nothing_is_kept(ended: Ended) -> None:
    kept = {tree.position for tree in ended.before[0]} | {story.position for story in ended.before[1]}
    assert kept == set(range(TOLD)) - {0, 5}


def test_stories_outlive_the_driver_and_the_compaction_of_the_log(ended: Ended) -> None:
    assert ended.engine.stories() == ended.before


def run(capsys: Any, *arguments: str) -> list[Any]:
    assert main(arguments) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_command_line_tells_the_same_from_the_log(ended: Ended, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(ended.checkpoint)
    listed = run(capsys, "errors", directory, "--json")
    assert [one["root"] for one in listed] == [root_text(tree.key) for tree in ended.before[0]]
    for tree, one in zip(ended.before[0], listed, strict=True):
        [told] = run(capsys, "explain", one["root"], "--checkpoint", directory, "--json")
        others = told.pop("other_attempts")
        assert told == one == json.loads(json.dumps(tree.to_story().to_json()))
        assert [other["attempt"] for other in others] == [3 - tree.attempt]
