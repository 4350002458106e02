"""TaskState and KeyValueTable against plain dicts, with two workers, crashes and attempts that run again."""

import pickle
import random
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from benchmarks.fast import fast
from sparkbolt.errors import StateError
from sparkbolt.worker.state import bucket_contents, keyvalue
from sparkbolt.worker.state.task_state import DictStore, KeyValueTable, TaskState
from tests.hypotheses import examples
from tests.native import needs_kernels

KEYS = st.one_of(
    st.sampled_from(["", "a", "b", "\0", "\ud800", "long" * 20]),
    st.integers(-3, 60),
    st.text(max_size=2),
    st.sampled_from([1.0, 2.5, True, None, b"a", (1, "x"), (1.0, "x"), Decimal(2), 1 << 70, frozenset({1, 2})]),
)
VALUES = st.one_of(
    st.integers(),
    st.text(max_size=3),
    st.floats(allow_nan=False),
    st.none(),
    st.lists(st.integers(), max_size=2),
    st.tuples(st.integers(), st.text(max_size=2)),
    st.tuples(st.lists(st.booleans(), max_size=1)),
)


def stamps(seed: int) -> Callable[[], int]:
    rng = random.Random(seed)
    return lambda: rng.getrandbits(64) or 1


def copy_of(content: dict) -> dict:
    return pickle.loads(pickle.dumps(content))


class CountingStore(DictStore):
    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        super().__init__(content or {})
        self.calls = 0

    def get(self, key, default=None):
        self.calls += 1
        return super().get(key, default)

    def put(self, key, value):
        self.calls += 1
        super().put(key, value)

    def delete(self, key):
        self.calls += 1
        super().delete(key)


def two_workers(
    keys_: st.SearchStrategy, values_: st.SearchStrategy, *, bucket_keys: int, compiled: bool, deletes: bool = True
) -> type[RuleBasedStateMachine]:
    """The state machine of two workers that put such keys and values.

    Args:
        keys_: of the entries.
        values_: of the entries.
        bucket_keys: ``BUCKET_KEYS``.
        compiled: whether the kernels are used.
        deletes: whether keys are deleted.
    """

    class TwoWorkers(RuleBasedStateMachine):
        """Any worker may run any attempt; an attempt may crash before, within or after its commit."""

        @initialize(seed=st.integers(0, 1 << 30))
        def start(self, seed: int) -> None:
            self.kernels = fast(compiled)
            self.kernels.__enter__()
            self.stamps = stamps(seed)
            self.workers = [TaskState(), TaskState()]
            self.store: dict[str, bytes] = {}
            self.previous: dict[str, bytes] = {}
            self.model: dict = {}
            self.previous_model: dict = {}
            self.segments: dict[str, bytes] = {}
            self.previous_segments: dict[str, bytes] = {}
            self.worker: TaskState | None = None
            self.old = keyvalue.BUCKET_KEYS
            keyvalue.BUCKET_KEYS = bucket_keys

        def teardown(self) -> None:
            if hasattr(self, "old"):
                keyvalue.BUCKET_KEYS = self.old
                self.kernels.__exit__(None, None, None)

        def _begin(self, which: int) -> None:
            self.worker = self.workers[which]
            self.attempt_store = DictStore(self.store)
            self.worker.begin(self.attempt_store)
            self.attempt = copy_of(self.model)
            self.attempt_segments = dict(self.segments)

        @precondition(lambda self: self.worker is None)
        @rule(which=st.integers(0, 1))
        def begin(self, which: int) -> None:
            self._begin(which)

        @precondition(lambda self: self.worker is None)
        @rule(which=st.integers(0, 1), again=st.booleans())
        def the_last_micro_batch_runs_again(self, which: int, again: bool) -> None:
            self.store, self.model, self.segments = self.previous, self.previous_model, self.previous_segments
            self._begin(which)

        @precondition(lambda self: self.worker is None)
        @rule(which=st.integers(0, 1))
        def a_worker_process_ends(self, which: int) -> None:
            self.workers[which] = TaskState()

        @precondition(lambda self: self.worker is not None)
        @rule(pairs=st.lists(st.tuples(keys_, values_), max_size=12))
        def put(self, pairs: list) -> None:
            for key, value in pairs:
                self.worker.key_value().put(key, value)
                self.attempt[key] = copy_of({0: value})[0]

        @precondition(lambda self: self.worker is not None)
        @rule(keys=st.lists(keys_, max_size=5))
        def get_and_change_in_place(self, keys: list) -> None:
            for key in keys:
                value = self.worker.key_value().get(key, "none")
                assert value == self.attempt.get(key, "none")
                assert (key in self.worker.key_value()) == (key in self.attempt)
                if isinstance(value, list):
                    value.append(1)
                    self.worker.key_value().put(key, value)
                    self.attempt[key] = list(value)

        @precondition(lambda self: self.worker is not None)
        @rule(pairs=st.lists(st.tuples(keys_, values_), max_size=12))
        def put_many(self, pairs: list) -> None:
            self.worker.key_value().put_many([key for key, _ in pairs], [value for _, value in pairs])
            self.attempt.update(copy_of(dict(pairs)))

        @precondition(lambda self: self.worker is not None)
        @rule(keys=st.lists(keys_, max_size=12))
        def get_many(self, keys: list) -> None:
            assert self.worker.key_value().get_many(keys, "none") == [self.attempt.get(key, "none") for key in keys]

        @precondition(lambda self: self.worker is not None and deletes)
        @rule(keys=st.lists(keys_, max_size=5))
        def delete(self, keys: list) -> None:
            for key in keys:
                assert self.worker.key_value().delete(key) == self.attempt.pop(key, None)

        @precondition(lambda self: self.worker is not None)
        @rule()
        def iterate(self) -> None:
            pairs = list(self.worker.key_value())
            assert len(pairs) == len(self.attempt) == len(self.worker.key_value())
            assert dict(pairs) == self.attempt

        @precondition(lambda self: self.worker is not None)
        @rule(name=st.sampled_from("pqr"), data=st.one_of(st.none(), st.binary(max_size=3), st.just(b"x" * 300)))
        def write_or_drop_a_segment(self, name: str, data: bytes | None) -> None:
            if data is None:
                self.worker.drop(name)
                self.attempt_segments.pop(name, None)
            else:
                self.worker.write(name, data)
                self.attempt_segments[name] = data

        @precondition(lambda self: self.worker is not None)
        @rule(name=st.sampled_from("pqr"))
        def read_segments(self, name: str) -> None:
            assert list(self.worker.names()) == sorted(self.attempt_segments)
            assert self.worker.read(name) == self.attempt_segments.get(name)
            assert self.worker.load(name, bytes) == self.attempt_segments.get(name)

        @precondition(lambda self: self.worker is not None)
        @rule(outcome=st.sampled_from(["durable", "durable", "durable", "crash before", "crash after"]))
        def end(self, outcome: str) -> None:
            if outcome != "crash before":
                self.worker.commit(self.stamps)
            if outcome == "durable":
                self.previous, self.previous_model = self.store, self.model
                self.previous_segments = self.segments
                self.store, self.model = dict(self.attempt_store), self.attempt
                self.segments = self.attempt_segments
            self.worker = None

        @invariant()
        def a_fresh_worker_reads_the_same(self) -> None:
            if getattr(self, "worker", 1) is None:
                fresh = TaskState()
                fresh.begin(DictStore(self.store))
                assert dict(fresh.key_value()) == self.model
                assert {name: fresh.read(name) for name in fresh.names()} == self.segments

    return TwoWorkers


WORDS = st.one_of(
    st.sampled_from(["to", "be", "or", "not", "", "plumless", "buckeroo", "é", "long" * 20]), st.text("ab€", max_size=2)
)
"""Strings; ``plumless`` and ``buckeroo`` have the same CRC-32."""
COUNTS = st.one_of(st.integers(-5, 5), st.sampled_from([1 << 31, -(1 << 63), (1 << 63) - 1]))

TestTwoWorkers = two_workers(KEYS, VALUES, bucket_keys=4, compiled=False).TestCase
TestTwoWorkers.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestTwoWorkersWithOneBucket = two_workers(KEYS, VALUES, bucket_keys=1 << 20, compiled=False).TestCase
TestTwoWorkersWithOneBucket.settings = settings(max_examples=examples(20), stateful_step_count=30, deadline=None)
TestTwoWorkersThatCount = two_workers(WORDS, COUNTS, bucket_keys=2, compiled=False).TestCase
TestTwoWorkersThatCount.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)
TestTwoCompiledWorkers = needs_kernels(two_workers(KEYS, VALUES, bucket_keys=4, compiled=True).TestCase)
TestTwoCompiledWorkers.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
TestTwoCompiledWorkersThatCount = needs_kernels(
    two_workers(WORDS, COUNTS, bucket_keys=2, compiled=True, deletes=False).TestCase
)
TestTwoCompiledWorkersThatCount.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


ODD = [None, 1.5, True, 1 << 63, ("a",), "a\0b", "\ud800", b"x"]


def contents(seed: int, *, compiled: bool) -> list[dict[str, bytes]]:
    """The store after each of many commits, of words that are counted; few things are neither str nor int."""
    with fast(compiled):
        rng, store, give = random.Random(seed), DictStore(), stamps(seed)
        workers, seen = [TaskState(), TaskState()], []
        words = [f"w{number}" for number in range(rng.choice([20, 3000]))]
        odd = rng.choice([0, 0, 0.001, 0.01])
        for _ in range(30):
            worker = rng.choice(workers)
            worker.begin(store)
            state = worker.key_value()
            if rng.random() < 0.3:  # puts alone, then many reads
                some = rng.choices(words, k=5)
                for word in some:
                    state.put(word, len(word))
                assert state.get_many(some) == [len(word) for word in some]
            for word in rng.choices(words, k=rng.choice([1, 50, 2000])):
                if rng.random() < odd:
                    state.put(rng.choice([word, *ODD]), rng.choice(ODD))
                elif rng.random() < odd:
                    state.delete(word)
                else:
                    known = state.get(word, 0)
                    state.put(word, known + 1 if type(known) is int else 1)
            if rng.random() < 0.3:
                some = sorted(rng.choices(words, k=5))
                state.put_many(some, [len(word) for word in some])
                assert all(state.get_many(some))
            if rng.random() < 0.1:
                continue  # the attempt is lost
            if rng.random() < 0.1:
                workers = [TaskState(), TaskState()]
            worker.commit(give)
            seen.append(dict(store))
        return seen


@needs_kernels
@pytest.mark.parametrize("seed", range(40))
def test_compiled_and_python_write_the_same_bytes(seed: int) -> None:
    assert contents(seed, compiled=True) == contents(seed, compiled=False)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_kernels)])
def test_a_put_alone_reads_nothing(compiled: bool) -> None:
    with fast(compiled):
        store, writer, other = CountingStore(), TaskState(), TaskState()
        writer.begin(store)
        writer.key_value().put("to", 1)
        writer.commit(stamps(1))
        other.begin(store)
        before = store.calls
        other.key_value().put("be", 2)
        other.key_value().put_many(["or", "not"], [3, 4])
        assert (other.key_value().get("be"), store.calls) == (2, before)
        other.commit(stamps(2))
        assert dict(other.key_value()) == {"to": 1, "be": 2, "or": 3, "not": 4}


@needs_kernels
def test_keys_of_discarded_attempts_are_not_kept() -> None:
    with fast(wanted=True):
        store, worker = DictStore(), TaskState()
        worker.begin(store)
        worker.key_value().put("to", 1)
        worker.commit(stamps(1))
        for attempt in range(5):
            worker.begin(store)
            assert worker.key_value().get("to") == 1
            assert worker.key_value().native.numbers.entries <= keyvalue.DROPPED_KEYS_MAX + 20_000
            for number in range(20_000):
                worker.key_value().put(f"{attempt}-{number}", 1)


def run_long(keys: int, touched: int, micro_batches: int, seed: int) -> tuple[CountingStore, dict, list[int]]:
    rng, store, model = random.Random(seed), CountingStore(), {}
    give, workers, calls = stamps(seed), [TaskState(), TaskState()], []
    for _ in range(micro_batches):
        before = store.calls
        worker = rng.choice(workers)
        worker.begin(store)
        state = worker.key_value()
        for key in rng.choices(range(keys), k=touched):
            if rng.random() < 0.1:
                assert state.delete(f"k{key}") == model.pop(f"k{key}", None)
            else:
                state.put(f"k{key}", state.get(f"k{key}", 0) + 1)
                model[f"k{key}"] = model.get(f"k{key}", 0) + 1
        worker.commit(give)
        calls.append(store.calls - before)
    return store, model, calls


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "touched", "micro_batches"), [(300, 40, 300), (40_000, 2000, 60), (20, 20, 50)])
def test_many_micro_batches_over_two_workers_keep_every_key(keys, touched, micro_batches):
    store, model, _ = run_long(keys, touched, micro_batches, seed=keys)
    fresh = TaskState()
    fresh.begin(store)
    assert dict(fresh.key_value()) == model


def test_the_store_holds_nothing_that_the_directory_does_not_need():
    store, model, _ = run_long(2000, 500, 80, seed=3)
    size = sum(map(len, store.values()))
    assert size < 40 * len(model) * (2 * bucket_contents.DELTAS_MIN + 1)
    worker = TaskState()
    worker.begin(store)
    touched = set()
    original = store.get
    store.get = lambda key, default=None: touched.add(key) or original(key, default)
    len(worker.key_value())
    # The newest delta may be included everywhere already; its stamp alone is of use.
    assert len(store.keys() - touched - {""}) <= 1


def test_nothing_is_written_when_nothing_changed():
    store, state = CountingStore(), TaskState()
    state.begin(store)
    assert state.commit(stamps(1)) == 0
    state.key_value().put("a", 1)
    assert state.commit(stamps(2)) > 0
    state.begin(store)
    assert state.key_value().get("a") == 1
    before = store.calls
    assert state.commit(stamps(3)) == 0
    assert store.calls == before


def test_a_value_changed_in_place_without_put_is_not_stored():
    store, state = DictStore(), TaskState()
    state.begin(store)
    state.key_value().put("a", [1])
    state.commit(stamps(1))
    state.begin(store)
    state.key_value().get("a").append(2)
    assert state.key_value().get("a") == [1, 2]
    state.commit(stamps(2))
    state.begin(store)
    assert state.key_value().get("a") == [1]


def test_many_keys_and_values_are_taken_from_arrays():
    state = KeyValueTable()
    words = pa.array(["to", "be", None])
    state.put_many(words, np.array([1, 2, 3]))
    state.put_many(words.dictionary_encode().slice(1, 1), pa.array([7]))
    assert dict(state) == {"to": 1, "be": 7, None: 3}
    assert set(map(type, state.get_many(words))) == {int}
    state.delete("to")
    assert state.get_many(iter(["to", "or", "be"]), 0) == [0, 0, 7]


def test_keys_that_are_equal_are_one_key_in_every_worker():
    store = DictStore()
    for number, key in enumerate([1, 1.0, True, Decimal(1)]):
        state = TaskState()
        state.begin(store)
        assert state.key_value().get(key, 0) == number
        state.key_value().put(key, number + 1)
        state.commit(stamps(number))


def test_a_value_that_cannot_be_pickled_is_named():
    state = TaskState()
    state.begin(DictStore())
    state.key_value().put("door", open)
    state.key_value().put("lock", lambda: 1)
    with pytest.raises(StateError, match=r"value of the entry 'lock' is of type builtins\.function"):
        state.commit(stamps(1))


def test_a_damaged_store_is_reported():
    store, state = DictStore(), TaskState()
    state.begin(store)
    state.write("a", b"x" * 1000)
    state.commit(stamps(1))
    del store[next(key for key in store if key)]
    state.begin(store)
    with pytest.raises(StateError, match="does not have it"):
        state.read("a")


def test_a_segment_is_decoded_once_while_its_stamp_is_unchanged():
    store, state, decoded = DictStore(), TaskState(), []

    def decode(data: bytes) -> int:
        decoded.append(data)
        return len(data)

    state.begin(store)
    state.write("a", b"x" * 1000)
    state.write("b", b"y", decoded=17)
    state.commit(stamps(1))
    for _ in range(3):
        state.begin(store)
        assert state.load("a", decode) == 1000
        assert state.load("b", decode) == 17
    assert decoded == [b"x" * 1000]
    other = TaskState()
    other.begin(store)
    other.write("a", b"z" * 2000)
    other.commit(stamps(2))
    state.begin(store)
    assert state.load("a", decode) == 2000


def test_a_snapshot_is_written_only_when_it_changed():
    store, state = CountingStore(), TaskState()
    state.begin(store)
    assert state.snapshot() is None
    assert state.set_snapshot(b"one")
    assert state.commit(stamps(1)) > 0
    state.begin(store)
    assert state.snapshot() == b"one"
    assert not state.set_snapshot(b"one")
    assert state.commit(stamps(2)) == 0


def test_instance_is_current_only_if_the_last_commit_was_by_the_same_worker():
    store, here, there = DictStore(), TaskState(), TaskState()
    here.begin(store)
    assert not here.instance_is_current
    here.commit(stamps(1))
    here.begin(store)
    assert here.instance_is_current
    here.set_snapshot(b"one")
    here.commit(stamps(2))
    here.begin(store)
    assert here.instance_is_current
    here.begin(store)
    assert not here.instance_is_current, "the attempt before did not commit"
    here.commit(stamps(3))
    there.begin(store)
    assert not there.instance_is_current
    there.set_snapshot(b"two")
    there.commit(stamps(4))
    here.begin(store)
    assert not here.instance_is_current


def test_a_segment_marked_alone_is_identified_by_its_stamp_even_if_its_content_is_equal():
    store, stamps = DictStore(), iter(range(1, 100)).__next__
    state, other = TaskState(), TaskState()
    mine = object()
    for each, decoded in ((state, mine), (other, object())):
        each.begin(store)
        each.write_own("__head", b"same", decoded, alone=True)
        each.commit(stamps)
    state.begin(store)
    assert state.load("__head", bytes) == b"same"
    assert state.load("__head", bytes) is not mine
