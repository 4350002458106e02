"""The columnar map of open trees does what a list of dicts does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparkbolt.driver.ledger.open_trees import RotatingMap
from sparkbolt.errors import InvariantError
from tests.hypotheses import examples

KEYS = st.sets(st.integers(0, 40) | st.integers(2**48, 2**48 + 40), max_size=12).map(sorted)


def u64(values):
    return np.array(values, dtype=np.uint64)


def i32(values):
    return np.array(values, dtype=np.int32)


class Naive:
    """Storm's RotatingMap: one dict for each bucket, the newest first."""

    def __init__(self, buckets):
        self.buckets = [{} for _ in range(buckets)]

    def all(self):
        return {key: value for bucket in self.buckets for key, value in bucket.items()}

    def pop(self, key):
        return next((bucket.pop(key) for bucket in self.buckets if key in bucket), None)

    def put(self, key, value):
        self.pop(key)
        self.buckets[0][key] = value

    def rotate(self):
        self.buckets.insert(0, {})
        return self.buckets.pop()


class Machine(RuleBasedStateMachine):
    @initialize(buckets=st.integers(2, 5))
    def begin(self, buckets):
        self.trees, self.naive = RotatingMap(buckets), Naive(buckets)

    @rule(keys=KEYS, data=st.data())
    def put(self, keys, data):
        values = [(data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2))) for _ in keys]
        self.trees.put(u64(keys), u64([x for x, _ in values]), i32([h for _, h in values]))
        for key, value in zip(keys, values, strict=True):
            self.naive.put(key, value)

    @rule(keys=KEYS, data=st.data())
    def xor(self, keys, data):
        values = [(data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2))) for _ in keys]
        zero, unknown = self.trees.xor(u64(keys), u64([x for x, _ in values]), i32([h for _, h in values]))
        expected = []
        for key, (x, holder) in zip(keys, values, strict=True):
            for bucket in self.naive.buckets:
                if key in bucket:
                    old, old_holder = bucket[key]
                    bucket[key] = (old ^ x, holder or old_holder)
                    if old == x:
                        expected.append(key)
        assert unknown.tolist() == [key for key in keys if key not in self.naive.all()]
        assert zero.tolist() == expected
        for key in expected:
            self.naive.pop(key)

    @rule(keys=KEYS)
    def remove(self, keys):
        known = [self.naive.pop(key) is not None for key in keys]
        assert self.trees.remove(u64(keys)).tolist() == known

    @rule(keys=KEYS)
    def touch(self, keys):
        self.trees.touch(u64(keys))
        for key in keys:
            if key in self.naive.all():
                self.naive.put(key, self.naive.all()[key])

    @rule()
    def rotate(self):
        keys, xors, holders = self.trees.rotate()
        gone = dict(zip(keys.tolist(), zip(xors.tolist(), holders.tolist(), strict=True), strict=True))
        assert gone == self.naive.rotate()

    @rule(keys=KEYS, ends=st.tuples(st.integers(0, 45), st.integers(0, 45)).map(sorted))
    def look(self, keys, ends):
        everything = self.naive.all()
        assert self.trees.find(u64(keys))[1].tolist() == [key in everything for key in keys]
        assert self.trees.holders_of(u64(keys)).tolist() == [everything.get(key, (0, 0))[1] for key in keys]
        inside = [key for key in sorted(everything) if ends[0] <= key <= ends[1]]
        assert self.trees.between(*ends).tolist() == inside
        assert self.trees.first_between(*ends) == (inside[0] if inside else None)

    @rule()
    def restore(self):
        self.trees = RotatingMap.restore(self.trees.buckets, *self.trees.arrays())
        everything = self.naive.all()
        self.naive = Naive(self.trees.buckets)
        for key, value in everything.items():
            self.naive.put(key, value)

    @invariant()
    def same_content(self):
        if not hasattr(self, "trees"):
            return
        keys, xors, holders = self.trees.arrays()
        held = dict(zip(keys.tolist(), zip(xors.tolist(), holders.tolist(), strict=True), strict=True))
        assert held == self.naive.all()
        assert keys.tolist() == sorted(held)
        assert len(self.trees) == len(held)


TestRotatingMap = Machine.TestCase
TestRotatingMap.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)


@given(buckets=st.integers(2, 6), turns=st.integers(0, 12))
def test_an_entry_dies_on_the_nth_rotation_after_its_put(buckets, turns):
    trees = RotatingMap(buckets)
    for _ in range(turns):
        trees.rotate()
    trees.put(u64([1]), u64([1]), i32([0]))
    lives = [len(trees.rotate()[0]) for _ in range(buckets)]
    assert lives == [0] * (buckets - 1) + [1]


def test_a_touch_prolongs_the_life_of_an_entry_and_an_xor_does_not():
    trees = RotatingMap(2)
    trees.put(u64([1, 2]), u64([1, 1]), i32([0, 0]))
    trees.rotate()
    trees.xor(u64([1]), u64([2]), i32([0]))
    trees.touch(u64([2]))
    assert trees.rotate()[0].tolist() == [1]


def test_a_million_open_trees_cost_at_most_28_bytes_each_as_trees_are_added_and_removed():
    trees = RotatingMap(31)
    keys = np.arange(1_000_000, dtype=np.uint64)
    trees.put(keys, keys + np.uint64(1), np.zeros(len(keys), dtype=np.int32))
    for step in range(10):
        assert trees.nbytes <= 28 * len(trees)
        trees.remove(keys[step * 30_000 : (step + 1) * 30_000])
    assert trees.nbytes <= 28 * len(trees)


def test_keys_that_are_not_ascending_are_refused():
    with pytest.raises(InvariantError, match="strictly rising"):
        RotatingMap(2).put(u64([2, 2]), u64([1, 1]), i32([0, 0]))


@pytest.mark.parametrize("buckets", [0, 1, 251])
def test_a_number_of_buckets_out_of_range_is_refused(buckets):
    with pytest.raises(ValueError, match="2 to 250 buckets"):
        RotatingMap(buckets)
