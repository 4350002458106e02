"""Segments: entries survive their bytes, and the newest of several stays."""

import random

import pytest

from sparkbolt.api.pickling import Pickling
from sparkbolt.worker.state.segments import TOMBSTONE, Entries, PickledValue, key_hash, key_hashes, merged


def test_different_keys_with_one_hash_are_merged_apart() -> None:
    assert key_hash("plumless") == key_hash("buckeroo")
    older = Entries.of(["plumless", "to", "buckeroo"], [1, 2, 3])
    newer = Entries.of(["buckeroo", "be"], [4, 5])
    whole = merged([(older, 0, 3), (newer, 0, 2)])
    assert whole is not None
    assert dict(zip(whole.keys, whole.values, strict=True)) == {"plumless": 1, "to": 2, "buckeroo": 4, "be": 5}
    assert whole.hashes.tolist() == sorted(map(key_hash, ["plumless", "buckeroo", "to", "be"]))


def test_key_hashes_of_arrays_equal_those_of_single_keys():
    for keys in (["a", "ü", ""], ["a", 1, None], ["\ud800", "b"], [object, 1.5]):
        assert key_hashes(keys).tolist() == [key_hash(key) for key in keys]


def test_entries_survive_a_round_trip_through_bytes():
    pickling = Pickling({})
    for values in (
        [1, 2],
        [1 << 40, -1],
        [1 << 80, 2],
        [0.5, -0.0],
        ["", "a"],
        [None, 1],
        [TOMBSTONE, 3],
        [TOMBSTONE, TOMBSTONE],
    ):
        entries = Entries.of(["a", "b"], values, deletes=TOMBSTONE in values)
        again = Entries.decode(entries.encode(pickling), pickling)
        assert (again.keys, again.values) == (entries.keys, entries.values)
    entries = Entries.decode(Entries.of(["a", "b"], [[1], TOMBSTONE], deletes=True).encode(pickling), pickling)
    assert {type(value) for value in entries.values} == {PickledValue, type(TOMBSTONE)}


@pytest.mark.parametrize("odd", [None, "", "a\0b", "\ud800", 7, "long " * 100])
def test_many_entries_give_the_same_result_as_few(odd: object) -> None:
    rng = random.Random(5)
    words = dict.fromkeys("".join(rng.choices("abcdé€", k=rng.randrange(12))) for _ in range(3000))
    keys = [*words, odd] if odd is not None else [*words]
    keys = list(dict.fromkeys(keys))
    for values in (list(range(len(keys))), [1 << 40] * len(keys), [1 << 70] * len(keys), [0.5] * len(keys)):
        pickling = Pickling({})
        entries = Entries.of(keys, values)
        again = Entries.decode(entries.encode(pickling), pickling)
        expected = sorted(zip(keys, values, strict=True), key=lambda pair: key_hash(pair[0]))
        for found in (again, entries):
            assert list(zip(found.keys, found.values, strict=True)) == expected
            assert set(map(type, found.values)) == {type(values[0])}
            assert found.hashes.tolist() == [key_hash(key) for key, _ in expected]
            assert found.bounds(3)[-1] == len(keys)
