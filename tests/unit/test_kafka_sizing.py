"""How many offsets fit into a number of bytes: what is learned of sizes, and how bytes are shared. No broker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.core.components import Range
from sparkbolt.spouts.kafka.planning import Log, Planner
from sparkbolt.spouts.kafka.reading import FETCHED_BYTES_MIN, FETCHING, fetching
from sparkbolt.spouts.kafka.sizing import GROWTH, READS, UNKNOWN_BYTES, Sizes
from sparkbolt.spouts.kafka.sources import KafkaPartition

MIB = 1 << 20


def known(max_bytes: int, **means: int) -> Sizes:
    """Sizes that know so many bytes per offset of each source."""
    sizes = Sizes(max_bytes)
    for source, mean in means.items():
        for _ in range(READS):
            sizes.learn(source, 10, 10 * mean)
    return sizes


def test_what_was_never_read_counts_as_large_so_reading_starts_small():
    assert Sizes(64 * MIB).fit({"a": 100_000, "b": 100_000}) == {"a": 32, "b": 32}


def test_an_estimate_falls_step_by_step_since_the_first_messages_may_be_the_small_ones():
    sizes = Sizes(MIB)
    found = []
    for _ in range(5):
        sizes.learn("a", 10, 1000)
        found.append(sizes.of("a"))
    assert found == [UNKNOWN_BYTES / GROWTH, UNKNOWN_BYTES / GROWTH**2, UNKNOWN_BYTES / GROWTH**3, 256, 100]


def test_an_estimate_rises_a_hundredfold_at_once_and_stays_there_while_the_read_is_among_the_last():
    sizes = known(MIB, a=100)
    sizes.learn("a", 50, 50 * 10_000)
    assert sizes.of("a") == 10_000
    for _ in range(READS - 1):
        sizes.learn("a", 50, 50 * 100)
    assert sizes.of("a") == 10_000
    sizes.learn("a", 50, 50 * 100)
    assert sizes.of("a") == 10_000 / GROWTH


def test_messages_without_bytes_count_as_one_byte_each():
    sizes = Sizes(1000)
    for _ in range(9):
        sizes.learn("a", 10, 0)
    assert sizes.fit({"a": 5000}) == {"a": 1000}


def test_bytes_are_shared_evenly_and_what_one_leaves_goes_to_the_others():
    sizes = known(1000, a=10, b=10, c=10)
    assert sizes.fit({"a": 10, "b": 500, "c": 500}) == {"a": 10, "b": 45, "c": 45}


def test_large_messages_of_one_kafka_partition_do_not_take_the_bytes_of_the_others():
    sizes = known(1000, a=400, b=10)
    assert sizes.fit({"a": 500, "b": 500}) == {"a": 1, "b": 60}


def test_a_message_larger_than_everything_that_fits_is_read_alone():
    assert known(1000, a=5000).fit({"a": 7}) == {"a": 1}


def test_where_not_one_of_each_fits_they_take_turns():
    sizes = known(1000, a=400, b=400, c=700, d=5000)
    given_ = [sizes.fit(dict.fromkeys("abcd", 9)) for _ in range(5)]
    assert given_ == [{"a": 1, "b": 1}, {"c": 1}, {"d": 1}, {"a": 1, "b": 1}, {"c": 1}]


sources = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(1, 300), st.integers(1, 2000)), min_size=1)


@given(max_bytes=st.integers(1, 10_000), of=sources)
def test_what_fits_is_within_the_bytes_unless_it_is_one_message(max_bytes, of):
    sizes = known(max_bytes, **{source: mean for source, (_, mean) in of.items()})
    wanted = {source: count for source, (count, _) in of.items()}
    found = sizes.fit(wanted)
    assert all(1 <= count <= wanted[source] for source, count in found.items())
    total = sum(count * sizes.of(source) for source, count in found.items())
    assert total <= max_bytes or list(found.values()) == [1]
    cheapest = min((sizes.of(source) for source in found if found[source] < wanted[source]), default=None)
    if cheapest is not None and len(found) == len(wanted):
        assert total + cheapest > max_bytes, "bytes are left for one more"


def test_a_plan_has_no_more_than_fits():
    places = [KafkaPartition("orders", number) for number in range(2)]
    sizes = known(1000, **{"orders/0": 10, "orders/1": 40})
    planner = Planner(1, sizes=sizes)
    logs = dict.fromkeys(places, Log(0, 10_000))
    ranges, _ = planner.plan({"orders/0": 7, "orders/1": 0}, logs, {}, {}, budget=10_000, now_s=0.0)
    assert ranges == [Range(0, "orders/0", 7, 55), Range(0, "orders/1", 0, 13)]
    ranges, _ = planner.plan({"orders/0": 7, "orders/1": 0}, logs, {}, {}, budget=10, now_s=0.0)
    assert [range_.end - range_.start for range_ in ranges] == [5, 5], "the budget in offsets holds as well"


def test_what_a_consumer_fetches_ahead_is_a_part_of_the_bytes_and_never_more_than_without_them():
    for alone in (False, True):
        small, middle, large = (fetching(size, alone=alone) for size in (1000, 8 * MIB, 1000 * MIB))
        assert small["queued.max.messages.kbytes"] * 1024 == small["fetch.message.max.bytes"] == FETCHED_BYTES_MIN
        assert middle["queued.max.messages.kbytes"] == 1024
        assert large["queued.max.messages.kbytes"] == FETCHING["queued.max.messages.kbytes"]
        assert large["fetch.message.max.bytes"] == (262_144 if alone else MIB)
    assert "fetch.message.max.bytes" not in fetching(None, alone=False)
