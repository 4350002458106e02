"""What comes next of kafka_partitions, and what happens to offsets that are gone: rules without a broker."""

from __future__ import annotations

import pytest

from sparkbolt.api.ranges import Range
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition, Source
from sparkbolt.connectors.kafka.offset_planner import (
    BACKWARDS_SECS,
    NO_IDS,
    UNNAMED_SECS,
    Look,
    OffsetPlanner,
    PartitionLog,
    TopicIds,
)

A, B = TopicIds({"orders": "A"}), TopicIds({"orders": "B"})
ORDERS = [KafkaPartition("orders", number) for number in range(4)]


def plan(planner, progress, logs, *, firsts=None, finished=None, budget=1000, now_s=0.0, ids=NO_IDS):
    return planner.plan(progress, Look(logs, firsts or {}, finished or {}, ids=ids, asked_s=now_s), budget=budget)


def marks_of(planner, progress, ranges, ids, places=ORDERS):
    return planner.marks(progress, ranges, Look(dict.fromkeys(places, PartitionLog(0, 900)), ids=ids))


def test_a_budget_is_spread_evenly_and_what_a_short_log_leaves_goes_to_the_others():
    logs = {ORDERS[0]: PartitionLog(0, 10), ORDERS[1]: PartitionLog(0, 1000), ORDERS[2]: PartitionLog(0, 1000)}
    ranges, gaps = plan(OffsetPlanner(2), {}, logs, firsts=dict.fromkeys(logs, 0), budget=110)
    assert gaps == []
    assert ranges == [Range(0, "orders/0", 0, 10), Range(1, "orders/1", 0, 50), Range(0, "orders/2", 0, 50)]


def test_a_budget_too_small_for_all_rotates_between_them():
    planner, logs = OffsetPlanner(1), {place: PartitionLog(0, 100) for place in ORDERS}
    progress: dict[str, int] = {}
    for _ in range(4):
        ranges, _ = plan(planner, progress, logs, firsts=dict.fromkeys(logs, 0), budget=2)
        assert len(ranges) == 2
        progress |= {range_.source: range_.end for range_ in ranges}
    assert progress == {f"orders/{number}": 2 for number in range(4)}


def test_nothing_is_read_of_a_kafka_partition_whose_first_position_is_not_known():
    assert plan(OffsetPlanner(1), {}, {ORDERS[0]: PartitionLog(0, 100)}) == ([], [])


def test_messages_finished_by_an_earlier_run_are_not_read_again():
    ranges, _ = plan(
        OffsetPlanner(1),
        {},
        {ORDERS[0]: PartitionLog(0, 100)},
        firsts={ORDERS[0]: 10},
        finished={ORDERS[0]: [(20, 30), (40, 50)]},
    )
    assert [(range_.start, range_.end) for range_ in ranges] == [(10, 20), (30, 40), (50, 100)]


def test_a_plan_that_would_lie_within_what_is_finished_begins_behind_it():
    ranges, _ = plan(
        OffsetPlanner(1),
        {"orders/0": 20},
        {ORDERS[0]: PartitionLog(0, 1000)},
        finished={ORDERS[0]: [(20, 900)]},
        budget=50,
    )
    assert ranges == [Range(0, "orders/0", 900, 950)]


@pytest.mark.parametrize(("out_of_range", "resumes"), [("earliest", 40), ("latest", 100), ("match", 40)])
def test_gap_left_by_retention_at_the_next_offset_is_reported_once_with_its_size(out_of_range, resumes):
    planner, logs = OffsetPlanner(1, out_of_range), {ORDERS[0]: PartitionLog(40, 100)}
    ranges, (gap,) = plan(planner, {"orders/0": 10}, logs)
    assert gap.skipped == resumes - 10
    assert f"{resumes - 10} offsets are skipped" in str(gap)
    assert [range_.start for range_ in ranges] == ([40] if resumes == 40 else [])
    _, again = plan(planner, {"orders/0": 10}, logs)
    assert again == []
    ranges, _ = plan(planner, {"orders/0": 10}, {ORDERS[0]: PartitionLog(40, 120)})
    assert ranges == [Range(0, "orders/0", resumes, 120)]


def test_out_of_range_fail_plans_nothing_and_says_why():
    ranges, (gap,) = plan(OffsetPlanner(1, "fail"), {"orders/0": 10}, {ORDERS[0]: PartitionLog(40, 100)})
    assert ranges == []
    assert gap.resume is None
    assert "offset 10 comes next, but the brokers have offsets 40 to 100" in str(gap)


@pytest.mark.parametrize(("out_of_range", "start"), [("earliest", 0), ("latest", 5), ("match", 5)])
def test_a_recreated_topic_continues_as_another_source_since_positions_only_rise(out_of_range, start):
    planner, progress, logs = OffsetPlanner(1, out_of_range), {"orders/0": 500}, {ORDERS[0]: PartitionLog(0, 5)}
    assert plan(planner, progress, logs, now_s=0.0) == ([], [])
    _, (gap,) = plan(planner, progress, logs, now_s=BACKWARDS_SECS)
    assert (gap.resume, gap.offset) == (Source("orders", 0, 1), start)
    ranges, _ = plan(planner, progress, {ORDERS[0]: PartitionLog(0, 9)}, now_s=BACKWARDS_SECS + 1)
    assert ranges == [Range(0, "orders/0~1", start, 9)]
    ranges, _ = plan(OffsetPlanner(1, out_of_range), {**progress, "orders/0~1": 7}, {ORDERS[0]: PartitionLog(0, 9)})
    assert ranges == [Range(0, "orders/0~1", 7, 9)]


@pytest.mark.parametrize(("out_of_range", "start", "skipped"), [("earliest", 10, 0), ("latest", 900, 890)])
def test_a_topic_with_another_id_is_a_different_topic_even_if_it_has_the_next_offset(out_of_range, start, skipped):
    planner, progress = OffsetPlanner(1, out_of_range), {"orders/0": 500, "orders/0#A": 1}
    logs = {ORDERS[0]: PartitionLog(10, 900)}
    ranges, gaps = plan(planner, progress, logs, ids=A)
    assert (ranges, gaps) == ([Range(0, "orders/0", 500, 900)], [])
    ranges, (gap,) = plan(planner, progress, logs, ids=B)
    assert (gap.resume, gap.offset, gap.skipped) == (Source("orders", 0, 1), start, skipped)
    assert "the topic was made again (its id was A and is B)" in str(gap)
    logs = {ORDERS[0]: PartitionLog(10, 905)}
    ranges, gaps = plan(planner, progress, logs, ids=B)
    assert (ranges, gaps) == ([Range(0, "orders/0~1", start, 905)], []), "it is told once"
    marks = marks_of(planner, progress, ranges, B, logs)
    assert marks == [Range(0, "orders/0#B", 1, 2)]
    progress |= {one.source: one.end for one in (*ranges, *marks)}
    ranges, gaps = plan(OffsetPlanner(1, out_of_range), progress, {ORDERS[0]: PartitionLog(10, 999)}, ids=B)
    assert (ranges, gaps) == ([Range(0, "orders/0~1", 905, 999)], []), "also by the next driver"


def test_a_mark_is_planned_once_and_not_before_its_source_is_read():
    planner = OffsetPlanner(2)
    ranges = [Range(0, "orders/0", 0, 9)]
    assert marks_of(planner, {}, ranges, NO_IDS) == [], "nobody knows the id"
    assert marks_of(planner, {}, ranges, A) == [Range(0, "orders/0#A", 0, 1)]
    assert marks_of(planner, {"orders/1": 7}, [], A) == [Range(1, "orders/1#A", 0, 1)], "it became known later"
    assert marks_of(planner, {"orders/1": 7, "orders/1#A": 1}, [], A) == []


def test_a_new_checkpoint_notices_a_topic_that_is_another_one_than_its_stored_offsets_are_of():
    planner, logs, firsts = OffsetPlanner(1), {ORDERS[0]: PartitionLog(0, 900)}, {ORDERS[0]: 500}
    unknown, other = TopicIds({}, {ORDERS[0]: "A"}), TopicIds({"orders": "B"}, {ORDERS[0]: "A"})
    assert plan(planner, {}, logs, firsts=firsts, budget=100, ids=unknown) == ([], [])
    ranges, _ = plan(planner, {}, logs, firsts=firsts, budget=100, now_s=UNNAMED_SECS, ids=unknown)
    marks = marks_of(planner, {}, ranges, unknown, logs)
    assert (ranges, marks) == ([Range(0, "orders/0", 500, 600)], [Range(0, "orders/0#A", 0, 1)])
    for progress in ({}, {"orders/0": 600, "orders/0#A": 1}):
        ranges, (gap,) = plan(OffsetPlanner(1), progress, logs, firsts=firsts, ids=other)
        assert ranges == [Range(0, "orders/0~1", 0, 900)]
        assert "its id was A and is B" in str(gap)


def test_topic_read_to_its_end_is_finished_unless_another_topic_has_replaced_it():
    progress, place, ends = {"orders/0": 9, "orders/0#A": 1}, ORDERS[0], {ORDERS[0]: 9}

    def finished(ids, *, places=(place,), planner=None):
        look = Look(dict.fromkeys(places, PartitionLog(0, 9)), {place: 9}, ids=ids)
        return (planner or OffsetPlanner(1)).planned_to(ends, progress, look)

    assert finished(A)
    assert not finished(NO_IDS), "the brokers have not said which one it is"
    assert finished(TopicIds({"orders": ""})), "they cannot"
    assert finished(NO_IDS, places=()), "none is there"
    assert not finished(B)
    planner = OffsetPlanner(1)
    plan(planner, progress, {place: PartitionLog(0, 9)}, budget=1, ids=B)
    assert not finished(B, planner=planner), "of the other one nothing is planned"


def test_a_topic_whose_id_is_not_known_now_is_not_read_on_until_it_is_told_or_does_not_come():
    progress, logs, planner = {"orders/0": 500, "orders/0#A": 1}, {ORDERS[0]: PartitionLog(0, 900)}, OffsetPlanner(1)
    next_ranges = lambda now_s, ids=NO_IDS: plan(planner, progress, logs, now_s=now_s, ids=ids)  # noqa: E731
    rest = ([Range(0, "orders/0", 500, 900)], [])
    assert next_ranges(0.0) == ([], [])
    assert next_ranges(1.0, A) == rest
    assert next_ranges(1.0, TopicIds({"orders": ""})) == rest, "the brokers know no ids"
    assert next_ranges(2.0) == ([], []), "the wait begins anew"
    assert next_ranges(2.0 + UNNAMED_SECS) == rest, "it is taken for the same"


def test_a_leader_that_knows_less_for_a_moment_is_not_believed():
    planner, progress = OffsetPlanner(1), {"orders/0": 500}
    assert plan(planner, progress, {ORDERS[0]: PartitionLog(0, 490)}, now_s=0.0) == ([], [])
    assert plan(planner, progress, {ORDERS[0]: PartitionLog(0, 510)}, now_s=1.0)[0] == [Range(0, "orders/0", 500, 510)]
    assert plan(planner, progress, {ORDERS[0]: PartitionLog(0, 490)}, now_s=BACKWARDS_SECS + 0.5) == ([], [])


def test_a_kafka_partition_has_more_to_read_until_it_is_planned_to_the_end_of_its_log():
    planner = OffsetPlanner(parallelism=1)
    one, other, empty = (KafkaPartition("orders", number) for number in range(3))
    logs = {one: PartitionLog(5, 10), other: PartitionLog(0, 10), empty: PartitionLog(7, 7)}
    sources = planner.unread({"orders/0": 3, "orders/1": 8}, Look(logs, {empty: 7}, {other: [(8, 10)]}))
    assert sources == {"orders/0": True, "orders/1": False, "orders/2": False}
