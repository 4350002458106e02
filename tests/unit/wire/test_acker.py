"""Partials become verdicts by three rules, however they are cut and in whatever order they come."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbolt.api.reports import Fail
from sparkbolt.base.ids import AGAIN, mix64_array, split_key, tree_key
from sparkbolt.base.packing import KEY_ARRAYS, keys_to_pack, pack, pack_keys, packed_keys, unpack, unpack_keys
from sparkbolt.errors import InvariantError
from sparkbolt.wire.acker import (
    BLOCK_BITS,
    combine,
    decode_partials,
    decode_verdicts,
    encode_partials,
    encode_verdicts,
    judge,
    merge,
    shard_of,
)
from sparkbolt.wire.verdicts import Partials


def u64(values):
    return np.array(values, dtype=np.uint64)


def fail(key, component="count", reason="no"):
    return Fail(key, component, 0, "exception", reason, 5, "Traceback ...\ud800")


def partials(inits=(), acks=(), held=(), fails=()):
    return Partials(
        u64([k for k, _ in inits]),
        u64([x for _, x in inits]),
        u64([k for k, _ in acks]),
        u64([x for _, x in acks]),
        u64([k for k, _ in held]),
        np.array([h for _, h in held], dtype=np.int32),
        list(fails),
    )


SEQUENCES = st.integers(0, 12) | st.integers((1 << BLOCK_BITS) - 3, (1 << BLOCK_BITS) + 3)
KEYS = st.builds(tree_key, st.integers(1, 2), SEQUENCES)
PARTS = st.lists(
    st.builds(
        partials,
        st.lists(st.tuples(KEYS, st.integers(0, 3)), max_size=8),
        st.lists(st.tuples(KEYS, st.integers(0, 3)), max_size=8),
        st.lists(st.tuples(KEYS, st.integers(1, 4)), max_size=4),
        st.lists(st.builds(fail, KEYS, st.sampled_from(["a", "b"])), max_size=2),
    ),
    max_size=4,
)


def naive(parts):
    """(done, failed, init failed, {open key: (xor, holder, new)}) by going through everything one by one."""
    totals, holders, inits = {}, {}, set()
    failed = {f.key for p in parts for f in p.fails}
    for p in parts:
        inits |= set(p.init_keys.tolist())
        for key, holder in zip(p.held_keys.tolist(), p.held_by.tolist(), strict=True):
            holders[key] = min(holder, holders.get(key, holder))
        for keys, xors in ((p.init_keys, p.init_xors), (p.ack_keys, p.ack_xors)):
            for key, x in zip(keys.tolist(), xors.tolist(), strict=True):
                totals[key] = totals.get(key, 0) ^ x
    done = {key for key in inits if totals[key] == 0 and key not in failed}
    left = {k: (x, holders.get(k, 0), k in inits) for k, x in totals.items() if x and k not in failed}
    return done, failed, failed & inits, left


def same(a, b):
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) and getattr(a, name) is not None
        for name in a.__dataclass_fields__
        if isinstance(getattr(a, name), np.ndarray)
    )


def assert_verdicts(verdicts, parts):
    done, failed, init_failed, left = naive(parts)
    inits = sorted({key for p in parts for key in p.init_keys.tolist()})
    covered = []
    for first, last, count in zip(
        verdicts.done_first.tolist(), verdicts.done_last.tolist(), verdicts.done_counts.tolist(), strict=True
    ):
        inside = [key for key in inits if first <= key <= last]
        assert len(inside) == count
        assert split_key(first)[0] == split_key(last)[0]
        covered += inside
    assert covered == sorted(done)
    assert [f.key for f in verdicts.failed] == sorted(failed)
    assert verdicts.init_failed.tolist() == sorted(init_failed)
    columns = (verdicts.open_xors, verdicts.open_holders, verdicts.open_new)
    found = dict(zip(verdicts.open_keys.tolist(), zip(*(c.tolist() for c in columns), strict=True), strict=True))
    assert found == left
    assert verdicts.open_keys.tolist() == sorted(left)


@given(parts=PARTS)
def test_one_judge_agrees_with_the_naive_model(parts):
    assert_verdicts(judge(parts), parts)


@settings(deadline=None)
@given(parts=PARTS, shards=st.integers(1, 4))
def test_merged_shards_agree_with_one_judge(parts, shards):
    def cut(p, shard):
        inits, acks, held = (shard_of(k, shards) == shard for k in (p.init_keys, p.ack_keys, p.held_keys))
        fails = [f for f in p.fails if shard_of(u64([f.key]), shards)[0] == shard]
        columns = (p.init_keys[inits], p.init_xors[inits], p.ack_keys[acks], p.ack_xors[acks])
        return Partials(*columns, p.held_keys[held], p.held_by[held], fails)

    verdicts = merge([judge([cut(p, shard) for p in parts]) for shard in range(shards)])
    assert_verdicts(verdicts, parts)
    whole = merge([judge(parts)])
    assert same(verdicts, whole)
    assert verdicts.failed == whole.failed


def test_a_range_holds_first_attempts_or_retries_and_never_both():
    keys = [tree_key(1, sequence) for sequence in (5, 6, AGAIN, AGAIN + 1)]
    verdicts = merge([judge([partials(inits=[(key, 0) for key in keys])])])
    assert (verdicts.done_first.tolist(), verdicts.done_last.tolist()) == ([keys[0], keys[2]], [keys[1], keys[3]])


@given(parts=PARTS, seed=st.integers(0, 9))
def test_combining_twice_or_in_another_order_changes_nothing(parts, seed):
    once = combine(parts)
    shuffled = random.Random(seed).sample(parts, len(parts))
    for other in (combine([once]), combine(shuffled), combine([combine(parts[:2]), combine(parts[2:])])):
        assert same(once, other)
        assert once.fails == other.fails


def test_acks_are_added_to_the_init_of_their_tree_and_those_of_older_trees_stay():
    new, done, older = (tree_key(1, sequence) for sequence in range(3))
    one, other = partials([(new, 4), (done, 2)], [(new, 1), (older, 8)]), partials([], [(done, 2), (new, 1)])
    for whole in (combine([one, other]), combine([combine([other]), combine([one])])):
        assert (whole.init_keys.tolist(), whole.init_xors.tolist()) == ([new, done], [4, 0])
        assert (whole.ack_keys.tolist(), whole.ack_xors.tolist()) == ([older], [8])


@given(parts=PARTS)
def test_partials_and_verdicts_survive_a_round_trip_through_bytes(parts):
    for p in parts:
        back = decode_partials(memoryview(encode_partials(p)))
        assert same(p, back)
        assert p.fails == back.fails
    verdicts = judge(parts)
    back = decode_verdicts(encode_verdicts(verdicts))
    assert same(verdicts, back)
    assert verdicts.failed == back.failed


@given(values=st.lists(st.integers(0, 2**64 - 1)))
def test_packed_keys_are_exact_for_arbitrary_values(values):
    assert unpack_keys(pack_keys(u64(values))).tolist() == values


@given(st.lists(st.integers(0, 300), max_size=80), st.lists(st.integers(0, 2**64 - 1), max_size=3), st.data())
def test_packed_keys_are_restored_with_or_without_leaps(steps, leaps, data):
    for leap in leaps:
        steps.insert(data.draw(st.integers(0, len(steps))), leap)
    keys = np.add.accumulate(u64(steps)) if steps else u64([])
    arrays = keys_to_pack(keys)
    assert len(arrays) == KEY_ARRAYS
    read, _ = unpack(memoryview(b"".join(pack(arrays))))
    assert packed_keys(*read).tolist() == keys.tolist()


def test_an_init_with_all_its_acks_in_one_micro_batch_is_complete():
    verdicts = judge([partials(inits=[(7, 0b0100)]), partials(acks=[(7, 0b0110)]), partials(acks=[(7, 0b0010)])])
    assert (verdicts.done_first.tolist(), verdicts.done_counts.tolist()) == ([7], [1])


def test_a_fail_wins_over_a_zero():
    verdicts = judge([partials(inits=[(7, 0)], fails=[fail(7)])])
    assert len(verdicts.done_first) == 0
    assert verdicts.init_failed.tolist() == [7]


def test_acks_of_a_million_lines_of_text_are_encoded_in_less_than_10_kilobytes():
    gaps = np.random.default_rng(7).integers(1, 120, 1_000_000).astype(np.uint64)
    keys = np.uint64(tree_key(1, 0)) + np.cumsum(gaps)
    verdicts = judge([Partials(init_keys=keys, init_xors=np.zeros(len(keys), dtype=np.uint64))])
    assert len(encode_verdicts(verdicts)) < 10_000
    assert merge([verdicts]).done_counts.tolist() == [1_000_000]


def test_blocks_are_spread_over_all_shards():
    keys = np.arange(400, dtype=np.uint64) << np.uint64(BLOCK_BITS)
    assert np.bincount(shard_of(keys, 4)).min() > 60


@pytest.mark.parametrize("data", [b"", b"no", encode_partials(partials(acks=[(1, 1)]))[:-3]])
def test_bytes_that_are_not_partials_are_refused(data):
    with pytest.raises(InvariantError, match=r"encoded partials|cut off"):
        decode_partials(data)


def test_acks_that_cancel_out_are_omitted_and_inits_never_are():
    whole = combine([partials(inits=[(1, 0)], acks=[(2, 9)]), partials(acks=[(2, 9)])])
    assert (whole.init_keys.tolist(), whole.ack_keys.tolist()) == ([1], [])
    assert mix64_array(whole.ack_keys).tolist() == []


def test_a_timeout_reset_is_sent_once_per_tree():
    parts = [Partials(touched_keys=u64([9, 3])), Partials(touched_keys=u64([9]))]
    back = [decode_partials(encode_partials(part)) for part in parts]
    assert combine(back).touched_keys.tolist() == [3, 9]
    assert decode_verdicts(encode_verdicts(judge(back))).touched.tolist() == [3, 9]
