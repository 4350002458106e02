"""Dead letters as values, in files, and what ``dead_letters=`` may mean."""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbolt import BasicBolt, Config, Direct, Spout, TopologyBuilder
from sparkbolt.api.dead_letters import (
    Attempt,
    DeadLetter,
    DeadLetterSink,
    ExhaustedMessage,
    FunctionSink,
    RawMessage,
    plain,
    restored,
    row_of_letter,
)
from sparkbolt.connectors.files.dead_letter_files import FileDeadLetters, read_letters
from sparkbolt.errors import InvalidTopology
from sparkbolt.files.local import append_lines
from sparkbolt.spouts import TextSpout


def attempt(number: int = 1, root: str = "33c3a78b9b45efb1", **other: Any) -> Attempt:
    known = {"cause": "fail", "reason": "no", "component": "count", "task": 0, "micro_batch_id": 7}
    return Attempt(number, root, **{**known, "started_ms": 1000, "ended_ms": 1500, **other})


def letter(name: str = "a1", **other: Any) -> DeadLetter:
    known = {"topology": "t", "version": "v", "component": "lines", "task": 0, "attempts": (attempt(),)}
    place = {"source": "a.txt", "position": 40, "fields": ("line",), "tuples": (("be",),)}
    return DeadLetter(name, **{**known, **place, **other})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("$bytes"), inner),
)


@given(JSON | st.binary() | st.datetimes(timezones=st.just(dt.UTC)))
def test_a_value_is_restored_unchanged(value: Any) -> None:
    assert restored(json.loads(json.dumps(plain(value)))) == value


def test_a_letter_is_one_line_and_is_read_back_complete() -> None:
    raw = RawMessage(b"\xff\n", None, (("h", b"1"), ("h", None)), 17)
    whole = letter(raw=raw, tuples=(("one\ntwo \ud800",), (b"bytes",)), note="n", end=50, message_id="'x'")
    line = whole.to_line()
    assert "\n" not in line
    assert DeadLetter.from_json(json.loads(line.encode())) == whole


def test_the_id_depends_on_the_last_attempt_and_not_on_who_writes_it() -> None:
    one, other = (
        ExhaustedMessage((attempt(1), attempt(2, "00"))),
        ExhaustedMessage((attempt(2, "00"),), attempts_left_out=1),
    )
    assert one.id_in("t", "lines") == other.id_in("t", "lines")
    different = [("t", "lines", ExhaustedMessage((attempt(2, "01"),))), ("u", "lines", one), ("t", "orders", one)]
    different.append(("t", "lines", ExhaustedMessage((attempt(2, "00", ended_ms=1501),))))
    ids = {exhausted.id_in(topology, spout) for topology, spout, exhausted in different}
    assert len(ids | {one.id_in("t", "lines")}) == 5


def test_a_row_of_a_dead_letter_stream_has_the_values_and_details_that_its_fields_ask_for() -> None:
    row = row_of_letter(letter(), {"line": "be"}, ["reason", "line", "story", "position", "attempts"])
    assert row[:2] == ["no", "be"]
    assert row[2]["cause"] == "fail"
    assert row[3] == 40
    assert [one["number"] for one in row[4]] == [1]
    assert row_of_letter(letter(), {}, ["line"]) == [None], "what could not be read has no values"


# Files.


def test_dead_letters_are_appended_and_a_repeated_one_counts_once(tmp_path: Path) -> None:
    sink = FileDeadLetters(tmp_path / "new" / "dead.jsonl")
    sink.open(None)  # type: ignore[arg-type]  it does not look at it
    sink.write([letter("a"), letter("b")])
    sink.write([letter("b"), letter("c")])
    sink.close()
    read = read_letters(sink.path)
    assert [one.id for one in read.letters] == ["a", "b", "c"]
    assert (read.repeated, read.damaged) == (1, [])
    assert os.stat(sink.path).st_mode & 0o077 == 0, "what failed may be private"


def test_a_line_truncated_by_a_crash_damages_no_other(tmp_path: Path) -> None:
    path = str(tmp_path / "dead.jsonl")
    Path(path).write_text(letter("a").to_line() + "\n" + letter("b").to_line()[:40])
    append_lines(path, [letter("c").to_line()])
    read = read_letters(path)
    assert [one.id for one in read.letters] == ["a", "c"]
    assert read.damaged == [2]


def write_many(path: str, name: str) -> None:
    for number in range(50):
        append_lines(path, [letter(f"{name}-{number}", note="x" * 5000).to_line()])


@pytest.mark.slow
def test_processes_that_write_to_one_file_take_turns(tmp_path: Path) -> None:
    path = str(tmp_path / "dead.jsonl")
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(path, name)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    read = read_letters(path)
    assert (len(read.letters), read.damaged) == (100, [])


# What may be given.


class Sink:
    def open(self, context: Any) -> None: ...
    def write(self, letters: Sequence[DeadLetter]) -> None: ...
    def close(self) -> None: ...


def take(one: DeadLetter) -> None: ...


class Lettered(Spout):
    outputs = ["line"]
    dead_letters = take

    def next_tuple(self, collector: Any) -> None: ...

    def dead_letter_sink(self, name: str) -> DeadLetterSink | None:
        return FunctionSink(lambda one: None) if name == "known" else None


class Bolt(BasicBolt):
    outputs = ["x"]

    def execute(self, tup: Any, collector: Any) -> None: ...


def built(spout: Any, *streams: str, config: Config | None = None, **settings: Any) -> Any:
    builder = TopologyBuilder("t", config)
    builder.set_spout("lines", spout, **settings)
    bolt = builder.set_bolt("bolt", Bolt()).shuffle_grouping("lines")
    for stream in streams:
        bolt.shuffle_grouping("lines", stream)
    return builder.build().components["lines"]


def mistakes(spout: Any, *streams: str, **settings: Any) -> str:
    with pytest.raises(InvalidTopology) as caught:
        built(spout, *streams, **settings)
    return "; ".join(caught.value.mistakes)


def test_keyword_overrides_the_spout_and_the_spout_overrides_the_topology(tmp_path: Path) -> None:
    whole = Config(dead_letters=f"file:{tmp_path}/all.jsonl")
    assert built(Lettered(), config=whole).dead_letters == FunctionSink(take), "a function of the class is no method"
    sink = built(Lettered(), dead_letters=f"file:{tmp_path}/own.jsonl", config=whole).dead_letters
    assert isinstance(sink, FileDeadLetters)
    assert sink.path.endswith("own.jsonl")
    assert built(TextSpout("x"), config=whole).dead_letters.path.endswith("all.jsonl")
    assert built(TextSpout("x")).dead_letters == "checkpoint:", "where nobody says anything"
    assert built(TextSpout("x"), dead_letters="log:", config=whole).dead_letters is None


def test_a_stream_of_dead_letters_is_declared_for_the_spout() -> None:
    spec = built(TextSpout("x"), "dead", dead_letters="stream:dead")
    assert spec.stream("dead").fields == ("line", "path", "offset", "story")


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ({"default": ["line"], "dead": ["line", "reson"]}, "did you mean 'reason'"),
        ({"default": ["line"], "dead": Direct(["line"])}, "direct"),
        ({"default": ["story"], "dead": ["story"]}, "'story' is their story"),
    ],
)
def test_a_stream_that_cannot_carry_dead_letters_is_refused(outputs: Any, said: str) -> None:
    spout = Lettered()
    spout.outputs = outputs
    assert said in mistakes(spout, "dead", dead_letters="stream:dead")


def test_an_unpicklable_sink_and_a_bolt_with_dead_letters_are_refused() -> None:
    sink = Sink()
    sink.lock = threading.Lock()  # type: ignore[attr-defined]
    assert "cannot be pickled" in mistakes(Lettered(), dead_letters=sink)
    builder = TopologyBuilder("t")
    builder.set_spout("lines", TextSpout("x"))
    builder.set_bolt("bolt", Bolt(), dead_letters="file:x").shuffle_grouping("lines")
    with pytest.raises(InvalidTopology, match="only spouts have them"):
        builder.build()
