"""The operator: one way to ask, whether a topology runs, has ended, or is in trouble."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.api.dead_letters import DeadLetter
from sparkbolt.control.books import EVENTS_FILE, events_in
from sparkbolt.control.control import ControlServer
from sparkbolt.control.description import Description
from sparkbolt.control.documents import ALL_TIME, TopologyState
from sparkbolt.control.home import AmbiguousTopologyError, Home, UnknownTopologyError
from sparkbolt.control.intent import Intent, Scale
from sparkbolt.control.kept_state import LISTED_CHARACTERS_MAX
from sparkbolt.control.operator import Operator
from sparkbolt.control.steering import Steering
from sparkbolt.driver.ledger.generations import Generations
from sparkbolt.driver.ledger.ledger_files import LETTERS_FOLDER
from sparkbolt.driver.returned_letters import RETURNED_FOLDER
from sparkbolt.errors import StateError, WrongUseError
from sparkbolt.files.local import LocalFiles, append_lines
from sparkbolt.spark.checkpoint_files import open_files
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.wire.peek import Peek, PeekedTuple
from tests.contract.engines import write_checkpoint
from tests.unit.api.test_dead_letters import attempt, letter
from tests.unit.control.topologies import FakeRunning, entry_of
from tests.unit.kept import KeptInMemory
from tests.unit.test_stories import fed, topology


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One line has failed, one is open, one was traced and acked."""
    directory = tmp_path_factory.mktemp("checkpoint")
    with TopologyTestDriver(topology(lambda tup: tup["line"] == "pair")) as driver:
        fed(driver, "raise", "pair", "ack", "waits")
        write_checkpoint(driver._engine, directory)
        described = Description.of(driver._engine.lane, {"fuse": True})
    (directory / "description").write_bytes(described.dumps())
    return directory


@pytest.fixture
def operator(home: Path) -> Operator:
    return Operator(open_files=open_files)


class Running:
    """A fake topology that is registered and answers."""

    def __init__(self, home: Path, id_: str = "words-1-100", **fields: Any) -> None:
        self.fake = FakeRunning()
        self.steering = Steering(self.fake, entry=lambda: self.entry)
        self.server = ControlServer(self.steering.ask)
        self.entry = entry_of(id_, control=self.server.address, **fields)
        Home(str(home)).write(self.entry)
        self.steering.apply_first()
        self.steering.begin()

    def close(self) -> None:
        self.server.close()
        self.steering.end()


@pytest.fixture
def running(home: Path) -> Iterator[Running]:
    one = Running(home)
    yield one
    one.close()


# A topology that runs.


def test_a_running_topology_is_queried(operator: Operator, running: Running) -> None:
    assert [entry["id"] for entry in operator.topologies()] == ["words-1-100"]
    document = operator.document("words")
    assert document["live"]
    assert document["now"]["open_trees"] == 2
    assert operator.change("words", "deactivate", by="alice")["done"]
    assert not running.fake.active
    assert operator.document("words")["entry"]["state"] == TopologyState.INACTIVE
    assert operator.change("words", "activate", by="alice")["done"]
    assert operator.change("words", "set", key="max-spout-pending", value="3", by="alice")["done"]
    assert operator.change("words", "trace", message="a.txt@4", by="alice")["done"]
    assert operator.change("words", "rebalance", executors={"split": 0}, by="alice")["refused"]
    assert not operator.change("words", "restart", by="alice")["refused"]
    assert not operator.change("words", "kill", wait_secs=1, by="alice")["refused"]
    assert running.fake.killed == [1]
    assert {event["by"] for event in operator.document("words")["events"]} == {None, "alice"}


def test_the_tuples_of_a_running_topology_are_seen(operator: Operator, running: Running) -> None:
    assert operator.peek("words", "lines", match="be") == []
    [peek] = running.fake.peeks.wanted(0.0)
    assert peek == Peek("lines", None, "be")
    running.fake.peeks.add([PeekedTuple(peek, 4, 7_000, "lines", 0, "default", "", "{'line': 'to be'}")])
    [one] = operator.peek("words", "lines", match="be")
    assert one == {
        "serial": 1,
        "time_ms": 7_000,
        "micro_batch_id": 4,
        "component": "lines",
        "task": 0,
        "stream": "default",
        "sender": "",
        "values": "{'line': 'to be'}",
    }
    assert operator.peek("words", "lines", match="be", after=1) == []
    with pytest.raises(WrongUseError, match="no component 'line': did you mean 'lines'"):
        operator.peek("words", "line")
    with pytest.raises(WrongUseError, match="has no stream 'odd'"):
        operator.peek("words", "lines", stream="odd")


def test_a_topology_that_has_ended_shows_no_tuples(operator: Operator, running: Running, home: Path) -> None:
    Home(str(home)).write({**running.entry, "state": TopologyState.ENDED, "control": None})
    with pytest.raises(WrongUseError, match="does not run"):
        operator.peek("words", "lines")


def test_the_state_of_a_running_topology_is_read_by_itself(operator: Operator, running: Running) -> None:
    sizes = operator.state("words")
    assert [(one["component"], one["task"], one["keys"]) for one in sizes["tasks"]] == [
        ("count", 0, 2),
        ("count", 1, 1),
    ]
    page = operator.component_state("words", "count", first=2)
    assert (page["micro_batch"], page["count"]) == (7, 3)
    seven, be = page["entries"]
    assert (be["task"], be["key"], be["value"], be["cut"]) == (0, "be", 2, False)
    assert (seven["key"], seven["value"], seven["cut"]) == (7, f'"{"x" * (LISTED_CHARACTERS_MAX - 1)}', True)
    (found,) = operator.component_state("words", "count", key="7")["entries"]
    assert found["value"] == "x" * 3000
    for arguments in ({"key": "8"}, {"as_of": 3}):
        with pytest.raises(WrongUseError, match=r"has no key '8'|micro-batch 3 is not there"):
            operator.component_state("words", "count", **arguments)
    running.fake.kept = None
    with pytest.raises(StateError, match="no micro-batch is committed"):
        operator.state("words")
    running.server.close()
    with pytest.raises(StateError, match=r"cannot be reached: .*; `sparkbolt state words-1-100` reads its checkpoint"):
        operator.state("words")


def test_the_state_of_a_topology_that_has_ended_is_read_from_its_checkpoint(home: Path) -> None:
    read: list[tuple[str, int | None]] = []

    def reads(directory: str, as_of: int | None) -> KeptInMemory:
        read.append((directory, as_of))
        return KeptInMemory.of_tasks({"be": 2})

    places = {"old-1-1": "/old", "temporary-1-1": None}
    for id_, place in places.items():
        Home(str(home)).write(entry_of(id_, name=id_, state=TopologyState.ENDED, ended_ms=1, checkpoint=place))
    operator = Operator(open_files=open_files, read_state=reads)
    assert operator.component_state("old-1-1", "count", key="be", as_of=3)["entries"][0]["value"] == 2
    assert read == [("/old", 3)]
    with pytest.raises(StateError, match="it ran without a checkpoint"):
        operator.state("temporary-1-1")
    with pytest.raises(StateError, match="use `sparkbolt state /old`"):
        Operator(open_files=open_files).state("old-1-1")


def test_an_unresponsive_topology_is_shown_from_its_checkpoint(
    monkeypatch: pytest.MonkeyPatch, operator: Operator, home: Path, checkpoint: Path
) -> None:
    monkeypatch.setattr("sparkbolt.control.operator.ANSWER_SECS", 0.1)
    entry = entry_of(control="unix:/nowhere/at/all", checkpoint=str(checkpoint))
    Home(str(home)).write(entry)
    document = operator.document("words")
    assert not document["live"]
    assert document["entry"]["state"] == TopologyState.ACTIVE
    assert "cannot be reached" in str(document["entry"]["why"])
    assert document["windows"][ALL_TIME]["components"]["lines"]["failed"] == 1
    answer = operator.change("words", "kill", by="alice")
    assert answer["refused"]
    assert "cannot be reached" in answer["text"]


def test_a_topology_on_another_machine_says_how_to_query_it(operator: Operator, home: Path) -> None:
    beat_ms = int(time.time() * 1000)
    entry = entry_of(control="unix:/nowhere", host="far", pid_space="far/1", beat_ms=beat_ms)
    Home(str(home)).write(entry)
    assert "it runs on far. Run the command there" in operator.change("words", "activate", by="a")["text"]


def test_tcp_client_takes_the_token_from_the_home(operator: Operator, home: Path) -> None:
    token = Home(str(home)).write_token("words-1-100")
    fake = FakeRunning()
    steering = Steering(fake, entry=entry_of)
    steering.begin()
    server = ControlServer(steering.ask, tcp=("127.0.0.1", 0), token=token)
    Home(str(home)).write(entry_of(control=server.address))
    try:
        assert operator.change("words", "deactivate", by="alice")["done"]
        (home / "tokens" / "words-1-100").write_text("another")
        answer = operator.change("words", "activate", by="alice")
        assert answer["refused"]
        assert "the token is missing or wrong" in answer["text"]
    finally:
        server.close()
        steering.end()


def test_two_topologies_with_one_name_are_distinguished_by_their_ids(
    operator: Operator, running: Running, home: Path
) -> None:
    other = Running(home, "words-2-100")
    try:
        with pytest.raises(AmbiguousTopologyError):
            operator.change("words", "deactivate", by="alice")
        assert operator.change("words-2-100", "deactivate", by="alice")["done"]
        assert running.fake.active
    finally:
        other.close()


# A topology that has ended.


@pytest.fixture
def ended(home: Path, checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint of the test's own, of a topology that has failed."""
    directory = tmp_path / "state"
    shutil.copytree(checkpoint, directory)
    Home(str(home)).write(
        entry_of("t-1-100", name="t", state=TopologyState.FAILED, why="a bolt raised", checkpoint=str(directory))
    )
    return directory


def test_a_topology_that_has_ended_is_read_from_its_checkpoint(operator: Operator, ended: Path) -> None:
    document = json.loads(json.dumps(operator.document("t")))
    assert not document["live"]
    assert (document["entry"]["state"], document["entry"]["why"]) == ("failed", "a bolt raised")
    assert [one["id"] for one in document["components"]] == ["lines", "split", "join", "last", "__acker"]
    assert document["settings"] == {"fuse": True}
    assert document["windows"][ALL_TIME]["components"]["split"]["executed"] == 4
    assert document["now"]["open_trees"] == 1
    [error] = document["errors"]
    assert (error["component"], error["text"]) == ("join", "ValueError: asked to")
    answer = operator.change("t", "activate", by="alice")
    assert answer["refused"]
    assert answer["text"] == "topology t-1-100 does not run (a bolt raised): you cannot activate it"


def test_a_checkpoint_is_opened_by_its_path_registered_or_not(
    operator: Operator, ended: Path, checkpoint: Path
) -> None:
    assert operator.find(str(ended))["id"] == "t-1-100"
    entry = operator.find(str(checkpoint))
    assert (entry["name"], entry["state"], entry["checkpoint"]) == ("t", "ended", str(checkpoint))
    assert operator.document(str(checkpoint))["now"]["open_trees"] == 1
    with pytest.raises(UnknownTopologyError, match="is not a checkpoint"):
        operator.find(str(ended / "ledger"))


@pytest.mark.parametrize("damage", ["removed", "emptied", "garbled"])
def test_a_checkpoint_in_trouble_is_described_in_a_sentence_and_is_no_error(
    operator: Operator, ended: Path, damage: str
) -> None:
    if damage == "removed":
        shutil.rmtree(ended)
    elif damage == "emptied":
        for path in (ended / "ledger").iterdir():
            path.unlink()
    else:
        (ended / "topology").write_bytes(b"\xff\x00 no json")
        (ended / "description").write_bytes(b"[[[[")
        (ended / EVENTS_FILE).write_bytes(b"\xff{")
    document = operator.document("t")
    if damage != "removed":
        assert "its checkpoint cannot be read" in str(document["entry"]["why"])
    assert operator.stories("t") == []
    assert operator.story("t", "33c3a78b9b45efb1") is None
    assert operator.letters("t") == []
    assert operator.log("t") == []
    assert operator.change("t", "discard", ids=["x"], by="alice")["refused"]


# Trees.


def test_trees_are_found_by_state_and_by_parts_of_their_story(operator: Operator, ended: Path) -> None:
    [failed] = operator.stories("t", "failed")
    assert failed["message_id"] == "'raise'"
    assert [story["message_id"] for story in operator.stories("t", "open")] == [None]
    [acked] = operator.stories("t", "acked")
    assert acked["message_id"] == "'pair'"
    assert operator.stories("t", "failed", search="ASKED TO") == [failed]
    assert operator.stories("t", "failed", search="nothing like it") == []
    assert operator.stories("t", "failed", search=acked["root"]) == [acked]  # exact: in any state
    assert operator.stories("t", "failed", search=f"lines[0]:{acked['sequence']}") == [acked]
    assert operator.stories("t", "failed", last=0) == []
    assert operator.stories("t", "no such state") == []


def test_one_tree_lists_its_other_attempts(operator: Operator, ended: Path) -> None:
    [failed] = operator.stories("t", "failed")
    assert operator.story("t", failed["root"]) == {**failed, "other_attempts": []}
    assert operator.story("t", "0" * 16) is None
    assert operator.story("t", "nonsense") is None
    assert operator.story("t", "nonsense@3") is None


# Changes of a topology that does not run.


def test_a_topology_that_does_not_run_is_rebalanced_for_its_next_start(operator: Operator, ended: Path) -> None:
    def change(**arguments: Any) -> str:
        answer = operator.change("t", "rebalance", by="alice", **arguments)
        return ("refused: " if answer["refused"] else "") + answer["text"]

    def remembered() -> Intent:
        return Intent.loads((ended / "control").read_bytes())

    assert "did you mean 'split'" in change(executors={"spilt": 4})
    assert not (ended / "control").exists()
    assert change(executors={"split": 4}, spark_partitions=3).startswith(
        "the topology starts with split=4 in 3 partitions of Spark; `sparkbolt check`"
    )
    assert remembered() == Intent(executors={"split": 4}, spark_partitions=3, before=Scale())
    assert change(executors={"split": 4}).startswith("no change is needed")
    change(executors={"join": 2})
    assert remembered().executors == {"split": 4, "join": 2}
    assert change(reset=True).startswith(
        "the rebalance is taken back: the topology starts with the numbers of its code"
    )
    assert remembered() == Intent()
    assert [event["kind"] for event in operator.document("t")["events"]] == ["rebalanced"] * 3
    for verb in ("activate", "restart"):
        assert operator.change("t", verb, by="alice")["text"].endswith(f"you cannot {verb} it")


def test_a_topology_that_has_ended_without_a_checkpoint_cannot_be_rebalanced(operator: Operator, home: Path) -> None:
    Home(str(home)).write(entry_of("t-1-100", name="t", state=TopologyState.ENDED))
    answer = operator.change("t", "rebalance", executors={"split": 4}, by="alice")
    assert (answer["refused"], answer["text"]) == (
        True,
        "topology t-1-100 does not run, and has no checkpoint that can be read",
    )


# Dead letters.


def put_letters(checkpoint: Path, *letters: DeadLetter, micro_batch: int = 1) -> None:
    folder = checkpoint / LETTERS_FOLDER
    folder.mkdir(exist_ok=True)
    text = "".join(f"{one.to_line()}\n" for one in letters)
    (folder / f"{micro_batch:09d}.jsonl").write_text(text)


def test_dead_letters_are_listed_searched_and_discarded(operator: Operator, ended: Path) -> None:
    put_letters(ended, letter("a" * 32), letter("b" * 32, position=50))
    put_letters(ended, letter("c" * 32, position=60), letter("a" * 32), micro_batch=2)
    assert [one["id"][0] for one in operator.letters("t")] == ["b", "c", "a"]
    assert [one["id"][0] for one in operator.letters("t", last=1)] == ["a"]
    assert [one["id"][0] for one in operator.letters("t", search="@50")] == ["b"]
    answer = operator.change("t", "discard", ids=["b" * 32, "cc"], by="alice")
    assert answer["done"]
    assert [one["id"][0] for one in operator.letters("t", discarded=False)] == ["a"]
    assert [one["discarded"] for one in operator.letters("t")] == [True, True, False]
    assert operator.letter("t", "bbb") == operator.letters("t")[0]
    assert (
        operator.change("t", "discard", ids=["zzz"], by="alice")["text"]
        == "no dead letter has an id that begins with zzz"
    )
    [event] = operator.document("t")["events"]
    assert (event["kind"], event["by"]) == ("letters", "alice")
    assert "2 dead letter(s) discarded" in event["text"]


def test_a_letter_is_replayed_with_edited_values(operator: Operator, ended: Path, tmp_path: Path) -> None:
    put_letters(ended, letter("a" * 32, tuples=(("be",),)), letter("b" * 32, tuples=(("bee",),), position=50))
    into = tmp_path / "again.jsonl"
    answer = operator.change("t", "replay", ids=["aaaa"], values={"line": "to be"}, target=str(into), by="alice")
    assert answer["done"], answer
    assert [json.loads(line) for line in into.read_text().splitlines()] == [{"line": "to be"}]
    assert [one["replayed"] for one in operator.letters("t")] == [True, False]
    assert [one["id"][0] for one in operator.letters("t", replayed=False)] == ["b"]
    several = operator.change("t", "replay", ids=["a", "b"], values={"line": "x"}, target=str(into), by="alice")
    assert "one dead letter at a time" in several["text"]
    wrong = operator.change("t", "replay", ids=["b"], values={"lien": "x"}, target=str(into), by="alice")
    assert "has no field 'lien': did you mean 'line'?" in wrong["text"]


def returned(checkpoint: Path) -> list[dict[str, Any]]:
    files = sorted((checkpoint / RETURNED_FOLDER).iterdir()) if (checkpoint / RETURNED_FOLDER).exists() else []
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_letters_of_one_kind_wait_in_the_checkpoint_for_the_next_start(operator: Operator, ended: Path) -> None:
    bad = [
        letter(name * 32, attempts=(attempt(1, reason=f"not a number: '{name}'"),), position=at)
        for at, name in ((1, "a"), (2, "b"))
    ]
    put_letters(ended, *bad, letter("c" * 32, position=3))
    kinds = operator.letter_kinds("t")
    assert [(one["count"], one["reason"]) for one in kinds] == [(2, "not a number: <text>"), (1, "no")]
    nothing = operator.change("t", "replay", by="alice")
    assert nothing["refused"]
    assert "choose dead letters" in nothing["text"]
    answer = operator.change("t", "replay", kind=kinds[0]["kind"], by="alice")
    assert answer["done"], answer
    assert answer["text"].startswith("2 letter(s) go back into lines: ")
    assert "they go back when it starts again with this checkpoint" in answer["text"]
    assert sorted(one["letter"]["id"][0] for one in returned(ended)) == ["a", "b"]
    assert [one["count"] for one in operator.letter_kinds("t")] == [1]
    assert [one["id"][0] for one in operator.letters("t", replayed=False)] == ["c"]
    again = operator.change("t", "replay", kind=kinds[0]["kind"], by="alice")
    assert "no dead letter that waits matches" in again["text"]


def test_a_letter_goes_back_with_edited_values(operator: Operator, ended: Path) -> None:
    put_letters(ended, letter("a" * 32, tuples=(("be",),)))
    assert operator.change("t", "replay", ids=["a"], values={"line": "to be"}, by="alice")["done"]
    [one] = returned(ended)
    assert (one["letter"]["tuples"], one["edited"]) == ([["to be"]], True)


@pytest.mark.parametrize("in_file", [False, True])
def test_letters_have_the_ids_that_components_have_today(operator: Operator, ended: Path, in_file: bool) -> None:
    before = Generations.read(LocalFiles(str(ended)), "it")[0]
    names = {"lines": "rows", "split": "totals"}
    now = replace(before, number=1, base=8, numbering=before.numbering.renamed(names), renamed=names)
    (ended / "topology").write_bytes(Generations([before, now]).dumps())
    description = json.loads((ended / "description").read_text())
    spout = next(one for one in description["components"] if one["id"] == "lines")
    spout["id"] = "rows"
    later = attempt(micro_batch_id=9, component="totals")
    old = letter("a" * 32, attempts=(attempt(component="split"),))
    new = letter("b" * 32, component="rows", position=50, attempts=(later,))
    if in_file:
        append_lines(str(ended / "dead.jsonl"), [old.to_line(), new.to_line()])
        description["letters"] = {"rows": f"file:{ended}/dead.jsonl"}
    else:
        put_letters(ended, old, new)
    (ended / "description").write_text(json.dumps(description))
    listed = operator.letters("t", spout="rows", component="totals")
    assert [(one["id"][0], one["component"]) for one in listed] == [("a", "rows"), ("b", "rows")]
    assert operator.letters("t", spout="lines") == []
    assert listed[0]["attempts"][0]["component"] == "totals"
    assert operator.letter("t", "aa") == listed[0]
    [kind] = operator.letter_kinds("t")
    assert (kind["spout"], kind["component"], kind["count"]) == ("rows", "totals", 2)
    answer = operator.change("t", "replay", kind=kind["kind"], by="alice")
    assert answer["text"].startswith("2 letter(s) go back into rows: ")
    assert {one["letter"]["component"] for one in returned(ended)} == {"rows"}


def test_a_letter_is_not_noted_as_replayed_before_its_request_is_durable(
    operator: Operator, ended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_letters(ended, letter("a" * 32))

    def full(*_: Any) -> bytes:
        raise OSError("the disk is full")

    monkeypatch.setattr("sparkbolt.control.letters.of_topology.request_of", full)
    answer = operator.change("t", "replay", ids=["a"], by="alice")
    assert (answer["refused"], answer["text"]) == (True, "OSError: the disk is full")
    assert [one["replayed"] for one in operator.letters("t")] == [False]


def test_a_running_topology_is_asked_to_take_the_letters(operator: Operator, home: Path, ended: Path) -> None:
    put_letters(ended, letter("a" * 32))
    one = Running(home, "words-9-100", name="t", checkpoint=str(ended))
    try:
        answer = operator.change("words-9-100", "replay", ids=["a"], by="alice")
        assert answer["text"] == "1 letter(s) go back into lines: aaaaaaaaaaaa"
        assert one.fake.taken == 1
    finally:
        one.close()


def test_timeline_of_a_running_topology_shows_operations_on_its_dead_letters(
    operator: Operator, home: Path, ended: Path
) -> None:
    put_letters(ended, letter("a" * 32))
    one = Running(home, "words-9-100", name="t", checkpoint=str(ended))
    try:
        assert operator.change("words-9-100", "discard", ids=["a"], by="alice")["done"]
        assert [event["kind"] for event in operator.document("words-9-100")["events"]][-1] == "letters"
    finally:
        one.close()


def test_what_is_done_with_letters_while_a_topology_ends_is_in_its_checkpoint(
    operator: Operator, home: Path, ended: Path
) -> None:
    put_letters(ended, letter("a" * 32))
    one = Running(home, "words-9-100", name="t", checkpoint=str(ended))
    try:
        one.steering.end()  # it still answers, and refuses to note anything
        assert operator.change("words-9-100", "discard", ids=["a"], by="alice")["done"]
        events = events_in((ended / EVENTS_FILE).read_bytes())
        assert [(event["kind"], event["by"]) for event in events][-1] == ("letters", "alice")
    finally:
        one.server.close()


@pytest.mark.slow
def test_ten_thousand_dead_letters_are_listed_without_holding_them(operator: Operator, ended: Path) -> None:
    for batch in range(100):
        put_letters(ended, *(letter(f"{batch * 100 + one:032d}") for one in range(100)), micro_batch=batch)
    found = operator.letters("t", last=3)
    assert [int(one["id"]) for one in found] == [9997, 9998, 9999]
    answer = operator.change("t", "discard", ids=[f"{one:032d}" for one in range(0, 10_000, 4)], by="alice")
    assert answer["text"].startswith("2500 dead letter(s) discarded: 000000000000")
    assert "and 2495 more" in answer["text"]


# The log.


def test_the_log_is_read_from_its_end_and_by_its_fields(operator: Operator, home: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    Home(str(home)).write(entry_of(log_directory=str(logs)))
    lines = [
        {"time_ms": at, "level": "INFO", "component": "split" if at % 2 else None, "text": f"line {at}"}
        for at in range(9)
    ]
    text = "\n".join(map(json.dumps, lines)) + '\nno json\n{"half": '
    (logs / "words.log").write_text(text)
    (logs / "words.log.1.gz").write_bytes(b"\x1f\x8b")
    found = operator.log("words", last=4)
    assert [entry["text"] for entry in found] == ["line 6", "line 7", "line 8\nno json", '{"half": ']
    assert [entry["text"] for entry in operator.log("words", component="split", last=2)] == ["line 5", "line 7"]
    assert [entry["text"] for entry in operator.log("words", search="LINE 3")] == ["line 3"]
