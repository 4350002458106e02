"""What a bolt keeps in attributes and what is never stored: collectors, contexts, and things like connections."""

import logging
import re
import sqlite3
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest

from sparkbolt import BasicBolt, Bolt, TopologyBuilder
from sparkbolt.errors import StateError
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver


def words():
    for word in ("to", "be", "or"):
        yield [word]


def topology(bolt):
    builder = TopologyBuilder("words")
    builder.set_spout("words", GeneratorSpout(words, outputs=["word"]))
    builder.set_bolt("bolt", bolt).global_grouping("words")
    return builder.build()


def run(bolt, *feeds):
    """Feed words, with a restart between the groups of ``feeds``; returns the driver, which has run."""
    with TopologyTestDriver(topology(bolt)) as driver:
        for group in feeds:
            for word in group:
                driver.feed("words", [word], message_id=word)
            driver.run_until_idle()
            driver.restart()
        return driver


class ByHand(Bolt):
    outputs = ["word"]

    def prepare(self, context):
        self.context = context
        self.collector = None
        self.seen = 0

    def execute(self, tup, collector):
        self.collector = collector
        self.seen += 1
        self.answer(tup)

    def answer(self, tup):
        self.collector.emit([tup["word"]], anchors=tup)
        self.collector.ack(tup)

    def flush(self):
        self.collector.emit([f"{self.seen} until {self.context.micro_batch_id}"])


def test_a_bolt_may_keep_its_collector_and_its_context():
    driver = run(ByHand(), ["to", "be"], ["or"])
    assert driver.acked("words") == ["to", "be", "or"]
    assert driver.emitted("bolt") == [["to"], ["be"], ["2 until 0"], ["or"], ["3 until 1"]]
    assert driver.errors() == []


class Client:
    def __init__(self):
        self.lock = threading.Lock()


@dataclass
class Record:
    value: object


def ids():
    yield from range(100)


THINGS = {
    "connection": lambda: sqlite3.connect(":memory:"),
    "lock": threading.Lock,
    "thread": lambda: threading.Thread(target=print),
    "client": Client,
    "generator": ids,
    "module": lambda: threading,
    "function": lambda: lambda word: word,
}
CONTAINERS = {
    "dict": (lambda: {"db": sqlite3.connect(":memory:")}, "sqlite3.Connection"),
    "list": (lambda: [1, {"x": (threading.Lock(),)}], "_thread.lock"),
    "dataclass": (lambda: Record(ids()), "generator"),
    "default dict": (lambda: defaultdict(lambda: 0), "use a function that a module defines by name"),
}


class Using(BasicBolt):
    outputs = ["count"]

    def __init__(self, kind):
        self.kind = kind

    def prepare(self, context):
        self.thing = THINGS[self.kind]() if self.kind in THINGS else CONTAINERS[self.kind][0]()
        self.counts = Counter()

    def execute(self, tup, collector):
        self.counts[tup["word"]] += 1
        if tup["word"] == "new":
            self.thing = THINGS[self.kind]()
        if tup["word"] == "none":
            self.thing = None
        collector.emit([f"{self.counts.total()} {self.thing is not None}"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", THINGS)
def test_unpicklable_attribute_made_in_prepare_is_transient_and_logged_once(kind, caplog):
    driver = run(Using(kind), ["to", "be"], ["or"])
    assert driver.emitted("bolt") == [["1 True"], ["2 True"], ["3 True"]]
    assert driver.errors() == []
    [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "bolt 'bolt': attribute 'thing' of type" in line
    assert "transient = ['thing']" in line


def test_replacement_stored_by_execute_is_kept_or_fails_its_tuple():
    driver = run(Using("lock"), ["to", "new", "be"], ["none"], ["or"])
    assert driver.emitted("bolt") == [["1 True"], ["2 True"], ["3 False"], ["4 False"]]
    [failed] = driver.failed("words")
    assert failed.message_id == "new"
    assert "attribute 'thing' of type _thread.lock cannot be kept" in failed.reason
    assert "transient = ['thing']" in failed.reason


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_container_of_such_objects_is_refused(kind):
    with pytest.raises(StateError, match=f"attribute 'thing' .*{re.escape(CONTAINERS[kind][1])}"):
        run(Using(kind), ["to"])


def test_data_of_an_unnamed_class_is_refused():
    class Local:
        total = 0

    class Kept(Using):
        def prepare(self, context):
            self.thing = Local()

    with pytest.raises(StateError, match=r"at the top level of a module"):
        run(Kept("lock"), ["to"])


class Helped(BasicBolt):
    outputs = ["id"]

    def prepare(self, context):
        self.writer = Writer(context, None)

    def execute(self, tup, collector):
        if self.writer.collector is None:
            self.writer = Writer(self.writer.context, collector)
        self.writer.collector.emit([self.writer.context.micro_batch_id])


class Writer:
    def __init__(self, context, collector):
        self.context, self.collector = context, collector


def test_a_helper_may_hold_collector_and_context_and_gets_those_of_its_task_after_a_restart():
    assert run(Helped(), ["to"], ["be"]).emitted("bolt") == [[0], [1]]


class Opening(Bolt):
    """The tuple ``first`` leaves a lock, which cannot be kept; what comes later uses it."""

    def __init__(self, in_flush):
        self.in_flush = in_flush

    def execute(self, tup, collector):
        if tup["word"] == "first":
            self.lock = threading.Lock()
        if not self.in_flush:
            self.lock.acquire(blocking=False)
        collector.ack(tup)

    def flush(self):
        if self.in_flush:
            self.lock.acquire(blocking=False)


@pytest.mark.parametrize("in_flush", [False, True], ids=["execute", "flush"])
def test_failure_caused_by_a_skipped_call_names_the_first_reason(in_flush):
    driver = run(Opening(in_flush), ["first", "second"])
    first, second = driver.failed("words")
    assert first.reason.startswith("what this left in the state of its task cannot be kept: bolt 'bolt': attribute")
    assert second.reason.startswith("AttributeError: 'Opening' object has no attribute 'lock' (the work was repeated ")
    assert first.reason in second.reason
    assert "CannotKeepError" not in "".join(error.traceback or "" for error in driver.errors())
