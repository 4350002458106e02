"""Dead letters that go back into the spout they came from, in the driver."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Bolt, Config, RetryPolicy, Spout, Topology, TopologyBuilder
from sparkbolt.api.dead_letters import DeadLetter
from sparkbolt.control.letters.edits import edited
from sparkbolt.driver.effects import Effect
from sparkbolt.driver.returned_letters import RETURNED_FOLDER, ReturnedLetters, letter_today, request_of
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import TextSpout

MENDED: dict[str, int] = {}


class Parse(BasicBolt):
    outputs = ["number"]

    def execute(self, tup: Any, collector: Any) -> None:
        text = tup["line"]
        collector.emit([int(text.replace("o", "0") if MENDED.get("on") else text)])


@pytest.fixture(autouse=True)
def _broken() -> Iterator[None]:
    MENDED.clear()
    yield
    MENDED.clear()


def numbers(path: Path, **config: Any) -> Topology:
    builder = TopologyBuilder("numbers", Config(max_attempts=2, **config))
    builder.set_spout("lines", TextSpout(str(path)))
    builder.set_bolt("parse", Parse()).shuffle_grouping("lines")
    return builder.build()


class Died(BaseException):
    """The driver has died."""


class Mortal(LocalEngine):
    """Dies before one of the effects of its machine."""

    dies_before = -1
    count = 0

    def perform(self, effect: Effect) -> Any:
        self.count += 1
        if self.count - 1 == self.dies_before:
            raise Died
        return super().perform(effect)


def run(engine: LocalEngine) -> None:
    for _ in range(300):
        if engine.coordinator.finished:
            return
        if engine.step() is None:
            engine.now_ms = max(engine.now_ms + 1, engine.next_due_ms() or 0)
    raise AssertionError("the topology does not finish")


def turns(engine: LocalEngine, count: int = 12) -> None:
    for _ in range(count):
        if engine.step() is None:
            engine.now_ms = max(engine.now_ms + 1, engine.next_due_ms() or 0)


def letters(engine: LocalEngine) -> list[DeadLetter]:
    lines = b"".join(engine.letters).splitlines()
    return [DeadLetter.from_json(json.loads(line)) for line in lines]


def give_back(engine: LocalEngine, *chosen: DeadLetter, is_edited: bool = False, name: str = "one") -> None:
    engine.files.write(f"{RETURNED_FOLDER}/{name}", request_of((one, is_edited) for one in chosen))
    engine.coordinator.returned.is_due = True


def mended(letter: DeadLetter, line: str) -> DeadLetter:
    return edited(letter, {"line": line})


def emitted(out: list[Any]) -> list[Any]:
    return [value for component, _, _, columns in out if component == "parse" for value in columns[0]]


def captured(topology: Topology, kind: type[LocalEngine] = LocalEngine) -> tuple[Any, list[Any]]:
    out: list[Any] = []
    return kind(topology, capture=lambda *one: out.append(one)), out


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.txt"
    path.write_text("1\n2o\n3\n4o\n5\n")
    return path


def test_returned_letters_are_read_again_and_acked(path: Path) -> None:
    engine, out = captured(numbers(path))
    run(engine)
    dead = letters(engine)
    assert len(dead) == 2
    MENDED["on"] = True
    give_back(engine, *dead)
    run(engine)
    assert sorted(emitted(out)) == [1, 3, 5, 20, 40]
    assert engine.ledger.metrics.of("lines").acked == 5
    assert engine.files.names(RETURNED_FOLDER) == []
    assert not engine.ledger.messages.retries.attempts
    engine.close()


def test_a_returned_letter_that_fails_again_is_one_letter_with_all_attempts(path: Path) -> None:
    engine, _ = captured(numbers(path))
    run(engine)
    first = letters(engine)[0]
    give_back(engine, first)
    run(engine)
    last = letters(engine)[-1]
    assert [one.number for one in last.attempts] == [1, 2, 3, 4]
    assert (last.where, last.attempts[:2]) == (first.where, first.attempts)
    assert last.id != first.id
    give_back(engine, last, name="two")
    run(engine)
    assert letters(engine)[-1].attempts_in_all == 6
    engine.close()


def test_edited_values_replace_the_record_and_stay_with_the_message(path: Path) -> None:
    engine, out = captured(numbers(path))
    run(engine)
    one, two = letters(engine)
    give_back(engine, mended(one, "77"), mended(two, "bad"), is_edited=True)
    run(engine)
    assert 77 in emitted(out)
    last = letters(engine)[-1]
    assert (last.tuples, last.source, last.position) == (mended(two, "bad").tuples, two.source, two.position)
    engine.close()


def test_a_record_that_its_source_has_lost_is_given_back_from_the_letter(path: Path) -> None:
    engine, out = captured(numbers(path))
    run(engine)
    dead = letters(engine)
    path.unlink()
    MENDED["on"] = True
    give_back(engine, dead[0], replace(dead[1], tuples=()))
    for _ in range(60):
        if engine.step() is None:
            engine.now_ms = max(engine.now_ms + 1, engine.next_due_ms() or 0)
    assert 20 in emitted(out)
    assert engine.ledger.metrics.of("lines").acked == 4, "a message without a record is never acked"
    engine.close()


def test_a_letter_of_a_task_that_is_gone_goes_back_to_another_task(path: Path) -> None:
    engine, out = captured(numbers(path).rescaled({"lines": 3}))
    run(engine)
    dead = [replace(one, task=2) for one in letters(engine)]
    engine.restart(numbers(path))
    MENDED["on"] = True
    give_back(engine, *dead, replace(dead[0], task=3))  # there never was a task 3
    run(engine)
    assert sorted(emitted(out)) == [1, 3, 5, 20, 40]
    assert engine.ledger.metrics.of("lines").acked == 5
    engine.close()


def renamed_numbers(spout: Any, old: str, new: str, bolt: str) -> Topology:
    builder = TopologyBuilder("numbers", Config(max_attempts=2))
    builder.set_spout(new, spout, renamed_from=old if old != new else None, retry=RetryPolicy(max_retries=1))
    builder.set_bolt(bolt, Parse(), renamed_from="parse" if bolt != "parse" else None).shuffle_grouping(new)
    return builder.build()


@pytest.mark.parametrize("kind", ["file", "queue"])
def test_a_letter_of_components_that_are_renamed_goes_back_to_the_spout_of_today(path: Path, kind: str) -> None:
    def built(old: str, new: str, bolt: str) -> Topology:
        return renamed_numbers(TextSpout(str(path)) if kind == "file" else Queue(), old, new, bolt)

    engine, out = captured(built("lines", "lines", "parse"))
    turns(engine)
    dead = letters(engine)
    engine.restart(built("lines", "rows", "numbers"))
    turns(engine, 3)
    give_back(engine, dead[0])
    turns(engine)
    again = letters(engine)[-1]
    assert (again.component, [one.component for one in again.attempts]) == ("rows", ["numbers"] * 4)
    engine.restart(built("rows", "texts", "numbers"))
    turns(engine, 3)
    today = letter_today(dead[0], engine.generations)
    assert (today.component, {one.component for one in today.attempts}) == ("texts", {"numbers"})
    assert letter_today(again, engine.generations).component == "texts", "written under the name between"
    assert letter_today(today, engine.generations) == today
    MENDED["on"] = True
    give_back(engine, again, *dead[1:], name="two")
    turns(engine)
    assert [value for name, _, _, columns in out if name in ("parse", "numbers") for value in columns[0]].count(20) == 1
    assert engine.ledger.metrics.of("texts").acked == (5 if kind == "file" else 3)
    assert not engine.ledger.messages.retries.attempts
    engine.close()


def test_a_second_request_for_the_same_letter_has_no_effect(path: Path) -> None:
    engine, out = captured(numbers(path))
    run(engine)
    dead = letters(engine)
    MENDED["on"] = True
    give_back(engine, dead[0], dead[0])
    give_back(engine, dead[0], name="two")
    run(engine)
    assert emitted(out).count(20) >= 1
    assert engine.ledger.metrics.of("lines").acked in (4, 5)
    assert engine.files.names(RETURNED_FOLDER) == []
    engine.close()


def test_progress_does_not_wait_for_a_returned_letter(path: Path) -> None:
    engine, _ = captured(numbers(path))
    run(engine)
    give_back(engine, letters(engine)[0])
    before = engine.ledger.finished
    with path.open("a") as file:
        file.write("6\n")
    engine.step()
    view = engine.ledger.views("lines")[str(path)]
    assert engine.ledger.finished == before
    assert (view.waiting, view.finished) == (1, view.planned)
    assert view.done(9) == []
    run(engine)
    engine.close()


def lost_by_deaths(path: Path, *, transactional: bool) -> list[int]:
    """The numbers of the effects before which a death of the driver loses a returned letter."""
    lost: list[int] = []
    for place in range(1000):
        MENDED.clear()
        engine, out = captured(numbers(path, transactional=transactional, compact_every=2), Mortal)
        run(engine)
        give_back(engine, *letters(engine))
        MENDED["on"] = True
        engine.count, engine.dies_before = 0, place
        before: Any = {}, -1
        died = False
        try:
            while not engine.coordinator.finished:
                before = copy.deepcopy(engine.stores), engine.last_commit
                turns(engine, 1)
        except Died:
            died, engine.dies_before = True, -1
            if engine.last_commit == before[1]:
                engine.stores = before[0]
            engine.restart()
        run(engine)
        acked = engine.ledger.metrics.of("lines").acked
        if acked != 5 or not {20, 40} <= set(emitted(out)) or engine.files.names(RETURNED_FOLDER):
            lost.append(place)
        engine.close()
        if not died:
            assert place > 10, "the driver has died at each step"
            return lost
    raise AssertionError("the driver always dies")


@pytest.mark.slow
@pytest.mark.parametrize("transactional", [False, True])
def test_a_driver_that_dies_at_any_step_loses_no_returned_letter(path: Path, transactional: bool) -> None:
    assert lost_by_deaths(path, transactional=transactional) == []


@pytest.mark.slow
def test_a_request_that_is_removed_before_its_plan_is_promoted_is_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = ReturnedLetters.look

    def hasty(self: ReturnedLetters, files: Any) -> None:
        look(self, files)
        for name in files.names(RETURNED_FOLDER):
            files.remove(f"{RETURNED_FOLDER}/{name}")

    monkeypatch.setattr(ReturnedLetters, "look", hasty)
    assert lost_by_deaths(path, transactional=False), "deaths find the mistake"


class Queue(Spout):
    outputs = ["line"]

    def open(self, context: Any) -> None:
        self._lines = ["1", "2o", "3"] if not MENDED.get("opened") else []
        MENDED["opened"] = True

    def next_tuple(self, collector: Any) -> None:
        if self._lines:
            line = self._lines.pop(0)
            collector.emit([line], message_id=line)


class Letters(BasicBolt):
    """Refuses each dead letter once."""

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.attempt == 1:
            raise ValueError("not now")
        MENDED["letters"] = MENDED.get("letters", 0) + 1


def queue_topology(dead_letters: str | None = None) -> Topology:
    builder = TopologyBuilder("numbers", Config(max_attempts=2))
    builder.set_spout("lines", Queue(), retry=RetryPolicy(max_retries=1), dead_letters=dead_letters)
    builder.set_bolt("parse", Parse()).shuffle_grouping("lines")
    if dead_letters is not None:
        builder.set_bolt("letters", Letters()).shuffle_grouping("lines", "dead")
    return builder.build()


def test_a_returned_letter_of_a_queue_that_fails_again_is_retried_on_its_stream() -> None:
    engine, _ = captured(queue_topology())
    turns(engine)
    [dead] = letters(engine)
    engine.close()
    MENDED.clear()
    engine, _ = captured(queue_topology("stream:dead"))
    turns(engine)
    assert MENDED["letters"] == 1
    give_back(engine, dead)
    turns(engine)
    assert (MENDED["letters"], engine.ledger.open_trees, engine.coordinator.retries) == (2, 0, 0)
    engine.close()


class Hesitates(Bolt):
    """Fails each line, or forgets it, so that its tree times out."""

    def execute(self, tup: Any, collector: Any) -> None:
        if not MENDED.get("forgets"):
            collector.fail(tup, "no")


def test_a_returned_letter_that_was_open_at_a_restart_keeps_its_values_and_attempts() -> None:
    builder = TopologyBuilder("numbers", Config(message_timeout_secs=3))
    builder.set_spout("lines", Queue(), retry=RetryPolicy(max_retries=1))
    builder.set_bolt("hesitates", Hesitates()).shuffle_grouping("lines")
    engine, _ = captured(builder.build())
    turns(engine)
    dead = letters(engine)[0]
    MENDED["forgets"] = True
    give_back(engine, dead)
    turns(engine, 3)
    assert engine.ledger.open_trees == 1
    engine.restart()
    turns(engine, 400)
    again = letters(engine)[-1]
    assert (again.attempts_in_all, again.attempts[:2], again.tuples) == (4, dead.attempts, dead.tuples)
    engine.close()


@pytest.mark.parametrize("dies_after", [0, 1, 2, 3])
def test_a_letter_of_a_queue_goes_back_with_its_values_also_after_a_restart(dies_after: int) -> None:
    engine, out = captured(queue_topology())
    turns(engine)
    [dead] = letters(engine)
    assert dead.message_id == "'2o'"
    give_back(engine, dead)
    turns(engine)
    again = letters(engine)[-1]
    assert (again.attempts_in_all, again.message_id, again.source, again.tuples) == (4, "'2o'", None, (("2o",),))
    give_back(engine, again, name="two")
    MENDED["on"] = True
    for _ in range(dies_after):
        engine.step()
    engine.restart()
    turns(engine)
    assert emitted(out) == [1, 3, 20]
    assert engine.ledger.open_trees == 0
    assert not engine.ledger.messages.retries.attempts
    assert engine.files.names(RETURNED_FOLDER) == []
    engine.close()
