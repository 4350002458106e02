"""What becomes of a tuple: each guarantee of tracking, on both engines.

One topology of independent lines runs to its end, once for each engine; each test looks at one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.contract.conftest import Begin
from tests.contract.engines import Engine
from tests.contract.parts import ACTIONS
from tests.contract.tracking import DIAMONDS, GROUPINGS, QUEUED, TRIED, everything


@pytest.fixture(scope="module")
def ended(begin: Begin) -> Iterator[Engine]:
    with begin(everything) as engine:
        engine.until_finished()
        yield engine


@pytest.mark.parametrize("action", ACTIONS)
def test_a_tree_completes_or_fails_by_what_its_bolt_does(ended: Engine, action: str) -> None:
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


def test_an_error_is_reported_but_for_a_failed_exception(ended: Engine) -> None:
    texts = [report.text for report in ended.reports if report.component == "deeds"]
    assert "ValueError: on purpose" in texts
    assert texts.count("on purpose") == 1, "of the two that say this only the ReportedFailedException is reported"


def test_diamonds_of_all_groupings_complete(ended: Engine) -> None:
    metrics = ended.of("diamonds")
    assert (metrics.acked, metrics.failed, metrics.pending) == (DIAMONDS, 0, 0)


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_a_grouping_copies_for_all_and_where_a_custom_one_names_a_task_twice(ended: Engine, grouping: str) -> None:
    copies = 2 if grouping in ("all", "custom") else 1
    assert ended.of(f"meet-{grouping}").executed == 2 * DIAMONDS * copies


def test_all_kinds_of_bolts_emit_anchored_and_ack(ended: Engine) -> None:
    assert sorted(n for [n] in ended.notes("from-function")) == list(range(30))
    assert sorted(n for [n] in ended.notes("from-doubled")) == sorted([2 * n for n in range(30)] * 2)
    assert sorted(n for [n] in ended.notes("from-concurrent")) == [n for n in range(30) if n not in (7, 8)]
    assert sorted(n for [n] in ended.notes("from-batched")) == list(range(30))
    assert sorted(ended.failures_of("numbers")) == [7, 8]
    assert ended.of("numbers").acked == 28


def test_flush_is_called_once_a_task_and_micro_batch(ended: Engine) -> None:
    names = [(micro_batch_id, task) for micro_batch_id, task in ended.notes("flushed")]
    assert names
    assert len(set(names)) == len(names)


def test_coroutines_of_a_frame_run_at_once_up_to_the_limit(ended: Engine) -> None:
    assert max(running for [running] in ended.notes("running")) == 5


def test_a_failed_message_is_given_again_and_then_set_aside(ended: Engine) -> None:
    attempts = {n: 3 if n % 2 else 2 if n % 4 == 2 else 1 for n in range(TRIED)}
    assert Counter(n for n, _ in ended.notes("tries")) == attempts
    assert sorted(map(tuple, ended.notes("tries"))) == [(n, i + 1) for n in attempts for i in range(attempts[n])]
    fates = Counter(tree.fate for tree in ended.failed if tree.component == "tried")
    assert fates == {"dead_letter": TRIED // 2, "retry": TRIED + TRIED // 4}
    assert ended.of("tried").set_aside == ended.of("tried").dead_letters == TRIED // 2
    last = ended.failures_of("tried")[1]
    assert last.attempt == 3
    assert "attempt 3; failed by tries[" in last.story


def test_a_spout_hears_of_each_message_once(ended: Engine) -> None:
    heard = Counter(map(tuple, ended.notes("queue")))
    acks = {("ack", n): 1 for n in range(QUEUED)}
    assert heard == {**acks, **{("fail", n): 1 for n in range(0, QUEUED, 3)}}


def test_a_tuple_without_an_id_is_processed_and_nobody_hears_of_it(ended: Engine) -> None:
    assert [values for values in ended.notes("moody") if values[0] == -1] == [[-1, 1]]
    assert ["ack", None] not in ended.notes("queue")
