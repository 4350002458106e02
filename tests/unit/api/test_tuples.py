"""A tuple is a read-only mapping from its fields to its values."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from sparkbolt import BasicBolt, Bolt, Spout, TopologyBuilder
from sparkbolt.api.pickling import Pickling
from sparkbolt.api.tuples import Origin, Tuple, tick
from sparkbolt.base.native import FAST_ENV, kernels
from sparkbolt.testing import TopologyTestDriver
from tests.unit.worker.emitting import BOLTS, run


def made(**values: Any) -> Tuple:
    return Tuple.of(Origin("lines", 0, "default", tuple(values)), list(values.values()), ((5, 6),))


def test_a_tuple_reads_as_any_mapping_does() -> None:
    tup = made(word="be", n=2)
    assert isinstance(tup, Mapping)
    assert (tup["word"], tup.word, tup[0], tup[-1]) == ("be", "be", "be", 2)
    assert dict(tup) == {**tup} == (lambda **given: given)(**tup) == {"word": "be", "n": 2}
    assert (list(tup), len(tup), list(reversed(tup))) == (["word", "n"], 2, ["n", "word"])
    assert (list(tup.keys()), list(tup.values()), list(tup.items())) == (
        ["word", "n"],
        ["be", 2],
        [("word", "be"), ("n", 2)],
    )
    assert ("word" in tup, "be" in tup, tup.get("m", 0)) == (True, False, 0)
    match tup:
        case {"word": word, **rest}:
            assert (word, rest) == ("be", {"n": 2})
        case _:
            pytest.fail("no mapping")


def test_a_field_with_the_name_of_a_method_is_an_item_only() -> None:
    tup = made(values=1, items=2, fields=3, mro=4, _id=5, __class__=6)
    assert (tup["values"], tup["items"], tup["fields"], tup["__class__"]) == (1, 2, 3, 6)
    assert list(tup.values()) == [1, 2, 3, 4, 5, 6]
    assert (tup.mro, tup._id, tup.fields[0]) == (4, 5, "values")


def test_the_usual_field_of_a_timestamp_is_an_attribute() -> None:
    assert Tuple.of(Origin("clicks", 0, "default", ("at",)), [7]).at == 7


def test_an_unknown_field_is_named_with_the_fields_there_are() -> None:
    with pytest.raises(AttributeError, match=r"'Tuple\(word, n\)' object has no attribute 'wrod'"):
        _ = made(word="be", n=2).wrod
    with pytest.raises(AttributeError, match="a tick: see is_tick"):
        _ = tick(5.0).word
    with pytest.raises(KeyError, match="'wrod' does not exist in stream 'default' of 'lines', whose fields are"):
        _ = made(word="be", n=2)["wrod"]
    assert getattr(made(word="be"), "wrod", None) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda tup: tup.__setitem__("word", 1),
        lambda tup: tup.__delitem__("word"),
        lambda tup: tup.__ior__({"n": 1}),
        lambda tup: tup.update(n=1),
        lambda tup: tup.setdefault("n", 1),
        lambda tup: tup.pop("word"),
        lambda tup: tup.popitem(),
        lambda tup: tup.clear(),
    ],
)
def test_a_tuple_is_read_only(change: Callable[[Any], Any]) -> None:
    tup = made(word="be")
    with pytest.raises(TypeError, match=r"a Tuple is read-only: change a copy, dict\(tup\)"):
        change(tup)
    assert dict(tup) == {"word": "be"}
    with pytest.raises(AttributeError):
        tup.word = 1


def test_a_tuple_is_stored_by_its_fields_and_its_anchors() -> None:
    tup = made(word="be", n=2)
    pickling = Pickling({})
    for read in (pickle.loads(pickle.dumps(tup)), pickling.loads(pickling.proved(tup))):
        assert isinstance(read, Tuple)
        assert (read.word, read.n, read.anchors) == ("be", 2, ((5, 6),))
    pickling.dumps([tup])
    assert pickling.tuples == [tup]


class Lines(Spout):
    outputs = ["line", "n"]

    def next_tuple(self, collector: Any) -> None: ...


class Changing(BasicBolt):
    """Tries to add a field at the first tuple."""

    outputs = ["line", "n"]

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.n == 0:
            tup["more"] = 1
        collector.emit([tup.line, len(tup)])


class Holding(Bolt):
    """Emits the tuple before, which it has kept."""

    outputs = ["line", "n"]

    def prepare(self, context: Any) -> None:
        self.before: Any = None

    def execute(self, tup: Any, collector: Any) -> None:
        if self.before is not None:
            collector.emit([self.before.line, self.before[1]], anchors=[self.before, tup])
            collector.ack(self.before)
        self.before = tup


def emitted(bolt: Any) -> tuple[list[Any], list[Any]]:
    builder = TopologyBuilder("read-only")
    builder.set_spout("lines", Lines())
    builder.set_bolt("tested", bolt).global_grouping("lines")
    with TopologyTestDriver(builder) as driver:
        for number in range(3):
            driver.feed("lines", [f"line {number}", number], message_id=number)
        driver.run_until_idle()
        return driver.emitted("tested"), driver.failed("lines")


@pytest.fixture(params=["on", "off"])
def _loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The loop over rows as kernels run it, if there are any, and as Python does."""
    monkeypatch.setenv(FAST_ENV, request.param)
    kernels.cache_clear()
    yield
    kernels.cache_clear()


@pytest.mark.usefixtures("_loops")
def test_a_change_fails_its_tuple_and_no_later_one_has_it() -> None:
    values, failed = emitted(Changing())
    assert values == [["line 1", 2], ["line 2", 2]]
    assert "a Tuple is read-only" in failed[0].reason


def test_a_tuple_that_is_kept_has_its_own_values() -> None:
    assert emitted(Holding())[0] == [["line 0", 0], ["line 1", 1]]


@pytest.mark.parametrize("kind", BOLTS, ids=lambda kind: kind.__name__)
def test_every_kind_of_bolt_reads_fields_as_attributes(kind: Any) -> None:
    def emit(collector: Any, tup: Any) -> Any:
        [shown] = tup if hasattr(tup, "key") else [tup]
        return [[str(shown.n)]]

    assert ["1"] in run(kind(emit)).emitted("tested")
