"""Division: every key in one task, with its value, whatever the numbers of tasks; what cannot be divided is named."""

from __future__ import annotations

import itertools
import pickle
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbolt import BasicBolt, KeyValueState, TopologyBuilder
from sparkbolt.api.groupings import fields_targets
from sparkbolt.api.keyed_state import refusal, targets
from sparkbolt.api.topology import ComponentSpec
from sparkbolt.api.tuples import Origin, Tuple
from sparkbolt.errors import StateError
from sparkbolt.sim.checkers.states import content_of
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.worker.state import keyvalue
from sparkbolt.worker.state.division import Division
from sparkbolt.worker.state.large_dicts import ENTRIES_MIN
from sparkbolt.worker.state.snapshots import DurableAttributes
from sparkbolt.worker.state.task_state import DictStore, TaskState
from tests.hypotheses import examples

STAMPS = itertools.count(1).__next__


class Keyed(BasicBolt):
    """A bolt with state of every kind."""

    keyed: Any = False
    state_version = 1

    def init_state(self, state: KeyValueState) -> None:
        self.table = state

    def execute(self, tup: Any, collector: Any) -> None:
        pass


class SaidKeyed(Keyed):
    """Says that all its keys are those of its grouping."""

    keyed = True


class Rescaled(Keyed):
    """Divides its attributes itself."""

    def rescale(self, states: list[dict[str, Any]], part: int, parts: int) -> dict[str, Any]:
        every = [item for state in states for item in state.get("queue", ())]
        return {"queue": every[part::parts], "had": len(states)}


def spec_of(bolt: BasicBolt, *groupings: str, fields: int = 1) -> ComponentSpec:
    builder = TopologyBuilder("divided")
    declared = builder.set_bolt("count", bolt, 2)
    names = ["word", "page"][:fields]
    for number, grouping in enumerate(groupings or ("fields",)):
        builder.set_spout(f"words{number}", GeneratorSpout(list, outputs=["word", "page"]))
        more = (names,) if grouping == "fields" else ()
        getattr(declared, f"{grouping}_grouping")(f"words{number}", *more)
    return builder.build().components["count"]


class Task:
    """A task of a bolt over its micro-batches, in a store; each micro-batch may run in a new worker."""

    def __init__(self, store: DictStore, bolt: type[BasicBolt] = Keyed, index: int = 0) -> None:
        self.store, self.index, self.cls = store, index, bolt
        self.begin()

    def begin(self) -> None:
        self.bolt: Any = self.cls()
        self.state = TaskState()
        self.state.begin(self.store)
        self.bolt.init_state(self.state.key_value())
        self.bolt.index = self.index  # as prepare may do
        owned = {"key_value_state": self.state.key_value()}
        self.durable = DurableAttributes(self.bolt, "count", owned=owned)
        self.durable.restore(self.state.snapshot(), self.state)

    def commit(self) -> None:
        self.state.set_snapshot(self.durable.capture(), self.durable.prove)
        self.durable.stage_large(self.state)
        self.state.make_ready()
        self.state.commit(STAMPS)
        self.durable.committed()
        self.state.begin(self.store)
        if not self.state.instance_is_current:
            self.durable.restore(self.state.snapshot(), self.state)


def stores_of(count: int, fill: Callable[[Any, int], None], bolt: type[BasicBolt] = Keyed) -> list[DictStore]:
    stores = [DictStore() for _ in range(count)]
    for index, store in enumerate(stores):
        task = Task(store, bolt, index)
        fill(task.bolt, index)
        task.commit()
    return stores


def divided(stores: list[DictStore], after: int, spec: ComponentSpec | None = None) -> list[DictStore]:
    division = Division(spec or spec_of(Keyed()), len(stores), after, STAMPS)
    pieces: dict[int, list[tuple[int, dict[str, bytes]]]] = {}
    for index, store in enumerate(stores):
        for part, piece in division.split(index, store).items():
            pieces.setdefault(part, []).append((index, piece))
    assert set(pieces) <= set(range(after))
    return [DictStore(division.join(part, pieces.get(part, ()))) for part in range(after)]


def attributes(store: DictStore) -> dict[str, Any]:
    return vars(Task(store).bolt)


def of_task(index: int, count: int, keys: list[Any]) -> list[Any]:
    return [key for key in keys if fields_targets([[key]], count)[0] == index]


WORDS = [f"word {number}" for number in range(40)]


# All keys, against a model.

keys = st.one_of(st.integers(-5, 30), st.text("ab\0c", max_size=3), st.sampled_from([(1, "a"), None, b"x"]))
values = st.one_of(st.integers(), st.text(max_size=2), st.lists(st.integers(), max_size=2), st.just((1, "be")))
operations = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(WORDS) | st.text("ab\0", max_size=2), st.integers(-9, 1 << 40)),
    st.tuples(st.just("put"), keys, values),
    st.tuples(st.just("delete"), st.sampled_from(WORDS), st.none()),
    st.tuples(st.just("add"), st.sampled_from(WORDS), st.integers(0, 9)),
    st.tuples(st.just("commit"), st.none(), st.none()),
    st.tuples(st.just("begin"), st.none(), st.none()),
    st.tuples(st.just("divide"), st.integers(2, 5), st.none()),
)


@given(st.lists(operations, max_size=60), st.integers(1, 4))
@settings(max_examples=examples(150), deadline=None)
def test_over_any_divisions_each_key_is_in_the_task_of_its_tuples_with_its_value(
    steps: list[Any], bucket_keys: int
) -> None:
    before, keyvalue.BUCKET_KEYS = keyvalue.BUCKET_KEYS, bucket_keys
    try:
        spec = spec_of(SaidKeyed())
        tasks = [Task(DictStore(), index=index) for index in range(2)]
        model: dict[Any, Any] = {}
        added: Counter[Any] = Counter()
        seen: set[Any] = set()
        for what, key, value in steps:
            if what == "divide":
                for task in tasks:
                    task.commit()
                tasks = [Task(store, index=at) for at, store in enumerate(divided([t.store for t in tasks], key, spec))]
            elif what in ("commit", "begin"):
                for task in tasks:
                    task.commit()
                    if what == "begin":
                        task.begin()
            else:
                bolt = tasks[int(targets([key], 1, len(tasks))[0])].bolt
                if what == "put":
                    bolt.table.put(key, value)
                    model[key] = value
                elif what == "delete":
                    assert bolt.table.delete(key) == model.pop(key, None)
                else:
                    bolt.counts = getattr(bolt, "counts", Counter())
                    bolt.counts[key] += value
                    bolt.seen = getattr(bolt, "seen", frozenset()) | {key}
                    added[key] += value
                    seen.add(key)
        for task in tasks:
            task.commit()
        check(tasks, model, added, seen)
    finally:
        keyvalue.BUCKET_KEYS = before


def check(tasks: list[Task], model: dict[Any, Any], added: Counter[Any], seen: set[Any]) -> None:
    contents = [content_of(task.store, {}) for task in tasks]
    assert sum(len(content.key_values) for content in contents) == len(model)
    assert {key: value for content in contents for key, value in content.key_values.items()} == model
    for index, content in enumerate(contents):
        for key in content.key_values:
            assert targets([key], 1, len(tasks))[0] == index
    counts = [getattr(task.bolt, "counts", Counter()) for task in tasks]
    assert sum(map(len, counts)) == len(added)
    assert sum(counts, Counter()) == +added
    assert [task.bolt.index for task in tasks] == list(range(len(tasks)))
    assert set().union(*(getattr(task.bolt, "seen", ()) for task in tasks)) == seen
    assert sum(len(getattr(task.bolt, "seen", ())) for task in tasks) == len(seen)


@pytest.mark.parametrize("value", ["plain", "list"])
def test_a_table_of_many_buckets_goes_on_with_deltas_and_new_workers(value: str) -> None:
    def valued(number: int) -> Any:
        return number if value == "plain" else [number]

    words = [f"w{number}" for number in range(9_000)]

    def fill(bolt: Any, index: int) -> None:
        own = of_task(index, 2, words)
        bolt.table.put_many(own, [valued(int(word[1:])) for word in own])

    stores = divided(divided(stores_of(2, fill), 3), 2)
    rng, model = random.Random(1), {word: valued(int(word[1:])) for word in words}
    tasks = [Task(store) for store in stores]
    for step in range(30):
        for word in rng.sample(words, 20):
            model[word] = valued(step)
            tasks[int(targets([word], 1, 2)[0])].bolt.table.put(word, valued(step))
        for task in tasks:
            task.commit()
            if step % 7 == 0:
                task.begin()
    assert {key: value for store in stores for key, value in content_of(store, {}).key_values.items()} == model
    assert any("kv/b" in key for key in stores[0])


def test_keys_of_several_fields_and_large_dicts_move() -> None:
    pairs = [(f"w{number}", number % 7) for number in range(2 * ENTRIES_MIN + 5_000)]
    homes = targets(pairs, 2, 2)

    def fill(bolt: Any, index: int) -> None:
        bolt.sizes = defaultdict(int)
        bolt.sizes.update((pair, pair[1]) for pair, home in zip(pairs, homes, strict=True) if home == index)

    stores = stores_of(2, fill)
    assert any("__dict/sizes" in key for key in stores[0])
    after = [attributes(store)["sizes"] for store in divided(stores, 3, spec_of(Keyed(), fields=2))]
    assert all(type(sizes) is defaultdict and sizes.default_factory is int for sizes in after)
    assert sum(map(len, after)) == len(pairs)
    assert {key: value for sizes in after for key, value in sizes.items()} == dict(pairs_with_values(pairs))


def pairs_with_values(pairs: list[tuple[str, int]]) -> list[tuple[tuple[str, int], int]]:
    return [(pair, pair[1]) for pair in pairs]


def test_values_are_moved_unread() -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return spring, ()

    def fill(bolt: Any, index: int) -> None:
        for word in of_task(index, 2, WORDS):
            bolt.table.put(word, Trap())

    READS.clear()
    stores = stores_of(2, fill)
    proofs = len(READS)
    stores = divided(divided(stores, 5), 2)
    assert len(READS) == proofs
    assert sum(len(list(Task(store).bolt.table)) for store in stores) == len(WORDS)


READS: list[int] = []


def spring() -> str:
    READS.append(1)
    return "sprung"


def test_a_tuple_held_under_a_key_moves_with_it_and_one_under_two_keys_is_refused() -> None:
    def tuple_of(word: str, edge: int) -> Tuple:
        return Tuple.of(Origin("words", 0, "default", ("word",)), [word], ((5, edge),))

    def fill(bolt: Any, index: int) -> None:
        bolt.held = {word: tuple_of(word, at) for at, word in enumerate(WORDS) if word in of_task(index, 2, WORDS)}
        bolt.newest = {word: [tup] for word, tup in bolt.held.items()}

    after = [attributes(store) for store in divided(stores_of(2, fill), 5)]
    assert sorted(word for bolt in after for word in bolt["held"]) == sorted(WORDS)
    assert all(bolt["newest"][word][0] is tup for bolt in after for word, tup in bolt["held"].items())
    assert {tup.anchors for bolt in after for tup in bolt["held"].values()} == {((5, at),) for at in range(len(WORDS))}

    def fill_twice(bolt: Any, index: int) -> None:
        tup = tuple_of("be", index)
        bolt.held = dict.fromkeys(of_task(index, 2, WORDS), tup)

    with pytest.raises(StateError, match="is held under two keys, which belong to two tasks"):
        divided(stores_of(2, fill_twice), 5)

    def fill_list(bolt: Any, index: int) -> None:
        bolt.queue = [tuple_of("be", index)]

    with pytest.raises(StateError, match="'queue' of task 1, which goes, holds tuples"):
        divided(stores_of(2, fill_list), 1)
    with pytest.raises(StateError, match="'queue' is not keyed"):
        divided(stores_of(2, fill_list), 3)


# What is refused.


def test_a_key_in_the_wrong_task_is_named() -> None:
    def fill(bolt: Any, index: int) -> None:
        bolt.table.put("word 1", 1)

    (wrong,) = {0, 1} - {int(targets(["word 1"], 1, 2)[0])}
    with pytest.raises(StateError) as caught:
        divided(stores_of(2, fill), 3)
    for part in ("bolt 'count'", "from 2 tasks to 3", "KeyValueState", "'word 1'", f"not to task {wrong}"):
        assert part in str(caught.value)

    def fill_dict(bolt: Any, index: int) -> None:
        bolt.seen = {"word 1": index}

    with pytest.raises(StateError, match=r"attribute 'seen': .*'word 1'.*define rescale\(self, states, part, parts\)"):
        divided(stores_of(2, fill_dict), 3)


def test_few_keys_prove_nothing() -> None:
    def fill(bolt: Any, index: int) -> None:
        if index == int(targets(["total"], 1, 2)[0]):  # by chance
            bolt.stat = {"total": 7}

    stores = stores_of(2, fill)
    with pytest.raises(StateError, match=r"attribute 'stat' has 1 key\(s\), too few to prove .*say keyed = \['stat'\]"):
        divided(stores, 3)
    assert [attributes(store).get("stat") for store in divided(stores, 3, spec_of(SaidKeyed()))].count(
        {"total": 7}
    ) == 1

    def fill_words(bolt: Any, index: int) -> None:
        bolt.stat = dict.fromkeys(of_task(index, 2, WORDS[:7]), 1)
        for word in of_task(index, 2, WORDS[:3]):
            bolt.table.put(word, 1)

    bolts = [Task(store).bolt for store in divided(stores_of(2, fill_words), 3)]
    assert sum(len(bolt.stat) for bolt in bolts) == 7, "seven are enough"
    assert sum(len(bolt.table) for bolt in bolts) == 3, "a key-value state is made for keys"


def test_a_tuple_of_one_value_is_a_value_and_not_the_values_of_a_grouping() -> None:
    def fill(bolt: Any, index: int) -> None:
        for key in of_task(index, 2, [(number,) for number in range(40)]):
            bolt.table.put(key, 1)

    stores = divided(stores_of(2, fill), 5)
    for index, store in enumerate(stores):
        kept = list(content_of(store, {}).key_values)
        assert kept == of_task(index, 5, kept)


def test_a_key_in_two_places_is_found() -> None:
    def fill(bolt: Any, index: int) -> None:
        for word in of_task(index, 2, WORDS):
            bolt.table.put(word, 1)
            bolt.seen = getattr(bolt, "seen", {}) | {word: 1}

    division = Division(spec_of(Keyed()), 2, 3, STAMPS)
    pieces = [(index, division.split(index, store)) for index, store in enumerate(stores_of(2, fill))]
    part = {name: data for name, data in pieces[0][1][0].items() if name == "table"}
    with pytest.raises(StateError, match=r"KeyValueState: key 'word \d+' is in the state of two tasks"):
        division.join(0, [(0, part), (1, part)])
    part = {name: data for name, data in pieces[0][1][0].items() if name == "attributes"}
    with pytest.raises(StateError, match=r"attribute 'seen': key 'word \d+' of task 1 is in another one, too"):
        division.join(0, [(0, part), (1, part)])


def test_the_state_of_one_task_must_be_declared_as_keyed() -> None:
    def fill(bolt: Any, index: int) -> None:
        bolt.table.put("be", 1)
        bolt.seen = {"be": 1}
        bolt.total = 1

    class Declared(Keyed):
        keyed = True

    (store,) = stores_of(1, fill)
    with pytest.raises(StateError, match=r"KeyValueState: it had one task, .*say keyed = True in its class"):
        divided([store], 3)
    after = divided([store], 3, spec_of(Declared()))
    assert sum(len(Task(store).bolt.table) for store in after) == 1
    assert [attributes(store).get("seen") for store in after].count({"be": 1}) == 1
    assert [attributes(store).get("total") for store in after] == [1, None, None]


def test_an_attribute_that_is_not_keyed_stays_if_the_class_says_so_and_is_named_otherwise() -> None:
    def fill(bolt: Any, index: int) -> None:
        bolt.counts = Counter(of_task(index, 2, WORDS))
        bolt.total = len(bolt.counts)
        bolt.names = {"nobody": index}

    class Declared(Keyed):
        keyed = ("counts",)

    stores = stores_of(2, fill)
    with pytest.raises(StateError, match="attribute 'total' is not keyed"):
        divided(without([DictStore(store) for store in stores], "names"), 3)
    after = [attributes(store) for store in divided(stores, 3, spec_of(Declared()))]
    assert [bolt.get("names") for bolt in after] == [{"nobody": 0}, {"nobody": 1}, None]
    assert sum(bolt.get("total", 0) for bolt in after) == len(WORDS)
    with pytest.raises(StateError, match=r"'(total|names)' of task 1, which goes, .*define rescale"):
        divided(stores, 1, spec_of(Declared()))


def without(stores: list[DictStore], name: str) -> list[DictStore]:
    for index, store in enumerate(stores):
        task = Task(store, index=index)
        delattr(task.bolt, name)
        task.commit()
    return stores


def test_what_is_the_same_in_all_tasks_or_as_the_code_sets_it_stays_and_reaches_new_tasks() -> None:
    class Priced(Keyed):
        def __init__(self) -> None:
            self.prices = {"a": 1}

    def fill(bolt: Any, index: int) -> None:
        bolt.zones = ["UTC"]
        bolt.call = bolt.execute
        bolt.counts = Counter(of_task(index, 2, WORDS))

    spec = spec_of(Priced())
    for after in (3, 1):
        stores = divided(stores_of(2, fill, Priced), after, spec)
        bolts = [vars(Task(store, index=index).bolt) for index, store in enumerate(stores)]
        assert [bolt["zones"] for bolt in bolts] == [["UTC"]] * after
        assert [bolt["index"] for bolt in bolts] == list(range(after))
        assert sum(map(len, (bolt["counts"] for bolt in bolts))) == len(WORDS)


def test_numbers_that_are_equal_by_chance_are_not_copied_and_broadcast_ones_are() -> None:
    def fill(bolt: Any, index: int) -> None:
        bolt.limit = 7

    with pytest.raises(StateError, match="attribute 'limit' is not keyed"):
        divided(stores_of(2, fill), 3)
    after = divided(stores_of(2, fill), 3, spec_of(Keyed(), "fields", "all"))
    assert [attributes(store)["limit"] for store in after] == [7, 7, 7]


def test_rescale_divides_the_attributes_and_keys_still_move() -> None:
    def fill(bolt: Any, index: int) -> None:
        bolt.queue = [f"{index}.{number}" for number in range(5)]
        bolt.table.put_many(of_task(index, 2, WORDS), of_task(index, 2, WORDS))

    after = divided(stores_of(2, fill, Rescaled), 3, spec_of(Rescaled()))
    queues = [attributes(store)["queue"] for store in after]
    assert sorted(itertools.chain(*queues)) == sorted(f"{index}.{number}" for index in range(2) for number in range(5))
    assert [len(queue) for queue in queues] == [4, 3, 3]
    assert sum(len(Task(store).bolt.table) for store in after) == len(WORDS)
    assert refusal(spec_of(Rescaled(), "shuffle"), 3, 1) is None
    with pytest.raises(StateError, match="the KeyValueState of task 1, which goes, has"):
        divided(stores_of(2, fill, Rescaled), 1, spec_of(Rescaled(), "shuffle"))
    stay = divided(stores_of(2, fill, Rescaled), 3, spec_of(Rescaled(), "shuffle"))
    assert [len(Task(store).bolt.table) for store in stay] == [len(of_task(at, 2, WORDS)) for at in range(2)] + [0]


@pytest.mark.parametrize(("returned", "said"), [([1], "rescale returned"), ({1: 2}, "rescale returned")])
def test_rescale_that_returns_something_else_is_refused(returned: Any, said: str) -> None:
    class Odd(Keyed):
        def rescale(self, states: Any, part: int, parts: int) -> Any:
            return returned

    with pytest.raises(StateError, match=said):
        divided(stores_of(2, lambda bolt, index: None), 3, spec_of(Odd()))


def test_attributes_of_an_older_version_are_migrated_before_they_are_divided() -> None:
    class Second(Keyed):
        state_version = 2

        def migrate(self, version: int, attributes: dict[str, Any]) -> None:
            for word, count in attributes.pop("counts").items():
                self.table.put(word, count)

    def fill(bolt: Any, index: int) -> None:
        bolt.counts = Counter(of_task(index, 2, WORDS))

    stores = stores_of(2, fill)
    after = divided(stores, 3, spec_of(Second()))
    tasks = [Task(store, Second) for store in after]
    assert sum(len(task.bolt.table) for task in tasks) == len(WORDS)
    assert not any(hasattr(task.bolt, "counts") for task in tasks)
    with pytest.raises(StateError, match="task 0: its state is of version 2, and its class has state_version = 1"):
        divided(after, 2)


@pytest.mark.parametrize("after", [1, 4])
def test_what_all_tasks_of_an_all_grouping_know_alike_is_known_by_those_that_there_are_then(after: int) -> None:
    def fill(bolt: Any, index: int) -> None:
        bolt.rules, bolt.version = {"b": [1], "a": 2}, 7
        for number in range(30):
            bolt.table.put(f"k{number}", [number])

    def of(store: DictStore) -> tuple[Any, ...]:
        task = Task(store)
        table = task.bolt.table
        return task.bolt.rules, task.bolt.version, len(table), [table.get(f"k{number}") for number in range(30)]

    spec = spec_of(Keyed(), "all", "all")
    assert refusal(spec, 2, after) is None
    stores = stores_of(2, fill)
    every = {"b": [1], "a": 2}, 7, 30, [[number] for number in range(30)]
    assert [of(store) for store in divided(stores, after, spec)] == [every] * after


@pytest.mark.parametrize("what", ["table", "attribute", "nothing"])
def test_what_differs_between_the_tasks_of_an_all_grouping_is_named(what: str) -> None:
    def fill(bolt: Any, index: int) -> None:
        bolt.rules = {"a": index if what == "attribute" else 2}
        if what == "table" or (what == "nothing" and index == 0):
            bolt.table.put("k", index)

    spec = spec_of(Keyed(), "all")
    said = {"attribute": "attribute 'rules'", "table": "its KeyValueState differs", "nothing": "KeyValueState differs"}
    with pytest.raises(StateError, match=said[what]):
        divided(stores_of(2, fill), 3, spec)
    assert refusal(spec, 1, 2) is not None, "one task proves nothing"
    assert refusal(spec_of(Keyed(), "all", "shuffle"), 2, 3) is not None


def test_trees_that_a_task_has_started_keep_it() -> None:
    stores = stores_of(2, lambda bolt, index: None)
    state = TaskState()
    state.begin(stores[1])
    state.write_own("__trees", pickle.dumps((9, {3: [(3, 4)]})))
    state.write_own("__trees/3", b"page")
    state.make_ready()
    state.commit(STAMPS)
    with pytest.raises(StateError, match="2 trees that task 1 has started are open, and the task goes: deactivate"):
        divided(stores, 1)
    state = TaskState()
    state.begin(divided(stores, 3)[1])
    assert state.read("__trees/3") == b"page"
    assert state.read("__trees") is not None
