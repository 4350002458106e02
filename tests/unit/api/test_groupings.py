"""Groupings against naive definitions of a few lines."""

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbolt import BasicBolt, TopologyBuilder
from sparkbolt.api.config import Config
from sparkbolt.api.groupings import (
    AllGrouping,
    Delivery,
    Emitted,
    FieldsGrouping,
    GlobalGrouping,
    Grouping,
    GroupingContext,
    LocalOrShuffleGrouping,
    NoneGrouping,
    PartialKeyGrouping,
    ShuffleGrouping,
    prepared,
    split_rows,
)
from sparkbolt.base.hashing import UnroutableError, hash_value
from sparkbolt.layout.lane import lay_out
from sparkbolt.spouts import GeneratorSpout

BUILT_IN = [
    ShuffleGrouping(),
    LocalOrShuffleGrouping(),
    NoneGrouping(),
    AllGrouping(),
    GlobalGrouping(),
    FieldsGrouping(["w"]),
    PartialKeyGrouping(["w"]),
]
words = st.lists(st.sampled_from(["to", "be", "or", "not", "", "é", "question"]), max_size=40)


def rows_of(deliveries: list[Delivery], count: int) -> list[list[tuple[int, int]]]:
    """For each row its (slot, target) pairs, after checking what every answer must keep."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    assert [(d.slot, d.target) for d in deliveries] == sorted({(d.slot, d.target) for d in deliveries})
    for slot, target, rows in deliveries:
        if rows is not None:
            assert rows.dtype == np.intp
            assert 0 < len(rows) < count
            assert bool(np.all(np.diff(rows) > 0))
        for row in range(count) if rows is None else rows.tolist():
            found[row].append((slot, target))
    return found


def targets_of(
    grouping: Grouping, column: Any, n: int, first: int = 0, sender: int = 3, micro_batch: int = 5
) -> list[int]:
    emitted = Emitted(sender, micro_batch, first, len(column), ("n", "w"), [[0] * len(column), column])
    found = rows_of(grouping.deliveries(emitted, range(10, 10 + n)), len(column))
    assert all(len(pairs) == 1 and pairs[0][0] == 0 for pairs in found)
    return [pairs[0][1] for pairs in found]


@pytest.mark.parametrize("grouping", BUILT_IN, ids=lambda grouping: grouping.describe())
@given(column=words, n=st.integers(1, 12))
def test_no_grouping_drops_a_row_and_only_all_copies(grouping: Grouping, column: list[str], n: int) -> None:
    emitted = Emitted(1, 0, 0, len(column), ("w",), [column])
    found = rows_of(grouping.deliveries(emitted, range(1, n + 1)), len(column))
    expected = n if isinstance(grouping, AllGrouping) else 1
    assert all(len(pairs) == expected for pairs in found)
    assert all(0 <= target < n for pairs in found for _, target in pairs)


@given(st.integers(0, 60), st.integers(1, 9), st.integers(0, 100), st.integers(1, 50), st.integers(0, 50))
def test_shuffle_is_a_round_robin_that_continues_from_block_to_block(
    count: int, n: int, cut: int, sender: int, micro_batch: int
) -> None:
    whole = targets_of(ShuffleGrouping(), [""] * count, n, 0, sender, micro_batch)
    for start in range(count - n + 1):
        assert sorted(whole[start : start + n]) == list(range(n))
    cut = min(cut, count)
    blocks = [(0, cut), (cut, count - cut)]
    parts = [targets_of(ShuffleGrouping(), [""] * size, n, first, sender, micro_batch) for first, size in blocks]
    assert parts[0] + parts[1] == whole


@pytest.mark.parametrize("senders", [1, 20])
@pytest.mark.parametrize(
    "grouping",
    [
        ShuffleGrouping(),
        LocalOrShuffleGrouping(),
        NoneGrouping(),
        PartialKeyGrouping(["w"]),
        PartialKeyGrouping(["n", "w"]),
    ],
    ids=lambda grouping: grouping.describe(),
)
def test_groupings_that_balance_share_single_rows_of_many_micro_batches(grouping: Grouping, senders: int) -> None:
    begins = Counter(
        targets_of(grouping, ["hot"], 4, sender=s, micro_batch=m)[0]
        for s in range(senders)
        for m in range(1000 // senders)
    )
    share = 1000 // (2 if isinstance(grouping, PartialKeyGrouping) else 4)
    assert sum(begins.values()) == 1000
    assert all(0.85 * share < begun < 1.15 * share for begun in begins.values())


@given(words, st.integers(1, 300))
def test_fields_sends_equal_values_to_the_task_of_their_number_in_list_arrow_and_dictionary(
    column: list[str], n: int
) -> None:
    naive = [(hash_value(word) >> 32) * n >> 32 for word in column]
    for form in (column, pa.array(column, pa.string()), pa.array(column, pa.string()).dictionary_encode()):
        assert targets_of(FieldsGrouping(["w"]), form, n) == naive


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), max_size=30), st.integers(1, 5))
def test_fields_looks_at_all_fields_and_at_nothing_else(rows: list[tuple[int, str]], n: int) -> None:
    numbers, letters = [n for n, _ in rows], [a for _, a in rows]
    emitted = Emitted(1, 0, 0, len(rows), ("x", "n", "a"), [list(range(len(rows))), numbers, letters])
    found = rows_of(FieldsGrouping(["n", "a"]).deliveries(emitted, range(n)), len(rows))
    seen: defaultdict[Any, set[Any]] = defaultdict(set)
    for row, pairs in zip(rows, found, strict=True):
        seen[row].update(pairs)
    assert all(len(pairs) == 1 for pairs in seen.values())


def test_a_value_that_cannot_be_routed_is_named_with_its_field() -> None:
    emitted = Emitted(1, 0, 0, 2, ("w",), [["to", object()]])
    with pytest.raises(UnroutableError, match="field 'w' cannot choose a task: <object object") as caught:
        FieldsGrouping(["w"]).deliveries(emitted, [1, 2])
    assert caught.value.row == 1


@given(words, st.integers(2, 9))
def test_partial_key_takes_the_less_used_of_two_tasks_that_depend_on_the_key_alone(column: list[str], n: int) -> None:
    pair = {word: targets_of(PartialKeyGrouping(["w"]), [word, word], n) for word in set(column)}
    used = [0] * n
    naive = []
    for word in column:
        one, other = pair[word]
        naive.append(other if used[other] < used[one] else one)
        used[naive[-1]] += 1
    assert targets_of(PartialKeyGrouping(["w"]), column, n) == naive
    assert targets_of(PartialKeyGrouping(["w"]), pa.array(column, pa.string()), n) == naive


def test_partial_key_evens_out_a_skew_that_fields_cannot() -> None:
    column = ["the"] * 700 + [f"word {n}" for n in range(300)]
    assert max(Counter(targets_of(FieldsGrouping(["w"]), column, 4)).values()) >= 700
    assert max(Counter(targets_of(PartialKeyGrouping(["w"]), column, 4)).values()) <= 400


def test_all_grouping_gives_each_copy_its_own_slot() -> None:
    emitted = Emitted(1, 0, 0, 3, ("w",), [["a", "b", "c"]])
    assert AllGrouping().deliveries(emitted, [7, 8]) == [Delivery(0, 0, None), Delivery(1, 1, None)]


@given(st.lists(st.integers(0, 19), max_size=60), st.sampled_from([20, 40]))
def test_rows_are_split_as_a_loop_would(targets: list[int], size: int) -> None:
    naive: defaultdict[int, list[int]] = defaultdict(list)
    for row, target in enumerate(targets):
        naive[target].append(row)
    split = split_rows(np.array(targets, dtype=np.uint8), size)
    found = {d.target: list(range(len(targets))) if d.rows is None else d.rows.tolist() for d in split}
    assert found == naive


class Named(Grouping):
    """Chooses what its answers say, by the first value."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    def choose_tasks(self, sender_task: int, values: list[Any]) -> Any:
        answer = self.answers[values[0]]
        return answer(sender_task) if callable(answer) else answer


def test_a_custom_grouping_may_name_no_task_several_tasks_or_one_twice() -> None:
    grouping = Named({"none": [], "one": [8], "both": (8, 7), "twice": np.array([7, 7]), "sender": lambda task: [task]})
    column = pa.array(["none", "one", "both", "twice", "sender"])
    found = rows_of(grouping.deliveries(Emitted(7, 0, 0, 5, ("w",), [column]), [7, 8]), 5)
    assert found == [[], [(0, 1)], [(0, 1), (1, 0)], [(0, 0), (1, 0)], [(0, 0)]]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([1], "named task 1, expected task numbers out of \\[7, 8\\]"),
        (["7"], "named task '7'"),
        (7, "returned 7, expected a list of task numbers"),
        ("7", "returned '7', expected a list"),
        (lambda _: 1 // 0, "choose_tasks raised ZeroDivisionError"),
    ],
)
def test_a_wrong_answer_of_a_grouping_names_the_grouping_and_the_row(answer: Any, why: str) -> None:
    grouping = Named({"good": [7], "bad": answer})
    with pytest.raises(UnroutableError, match=f"grouping custom\\(Named\\): .*{why}") as caught:
        grouping.deliveries(Emitted(1, 0, 0, 2, ("w",), [["good", "bad"]]), [7, 8])
    assert caught.value.row == 1


class Prepared(Grouping):
    def prepare(self, context: GroupingContext, stream: str, targets: Any) -> None:
        self.told = (context.consumer, stream, targets)

    def choose_tasks(self, sender_task: int, values: list[Any]) -> list[int]:
        return [self.told[2][0]]


def test_each_sender_prepares_its_own_copy() -> None:
    original = Prepared()
    own = prepared(original, GroupingContext("t", "a", "b", 1, Config()), "default", [7, 8])
    assert isinstance(own, Prepared)
    assert own.told == ("b", "default", (7, 8))
    assert not hasattr(original, "told")


class OnlyTheFirst(ShuffleGrouping):
    """A rule of its own, derived from a grouping that does not care."""

    def _route(self, emitted: Emitted, targets: Any) -> list[Delivery]:
        return [Delivery(0, 0, None)]


class Quiet(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize(("grouping", "fused"), [(ShuffleGrouping(), True), (OnlyTheFirst(), False)])
def test_only_groupings_that_allow_any_task_let_a_bolt_be_fused(grouping: Grouping, fused: bool) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("lines", GeneratorSpout(lambda: iter([["to"]]), outputs=["w"], count=1))
    builder.set_bolt("quiet", Quiet()).grouping("lines", grouping)
    assert (lay_out(builder.build(), 2).fused_into == {"quiet": "lines"}) == fused


def test_none_grouping_spreads_over_tasks_and_repeats_its_choice() -> None:
    once = targets_of(NoneGrouping(), [""] * 4000, 4)
    assert once == targets_of(NoneGrouping(), [""] * 4000, 4)
    assert once[10:] == targets_of(NoneGrouping(), [""] * 3990, 4, first=10)
    assert min(Counter(once).values()) > 850
