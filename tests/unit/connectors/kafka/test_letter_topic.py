"""Dead letters in a topic of the mock cluster: what they hold, who writes them, and how they are replayed."""

from __future__ import annotations

import time

import pytest

from sparkbolt import Bolt, DeadLetter, RetryPolicy
from sparkbolt.api.components import Spout
from sparkbolt.api.config import Config
from sparkbolt.api.dead_letters import Attempt
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_dead_letters import READ_SECS, letter_of, message_of, read_topic
from sparkbolt.faces.cli import main
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import TextSpout
from sparkbolt.spouts.kafka import KafkaDeadLetters
from sparkbolt.streams import TopologyBuilder
from tests.kafka import SEEN, Keep, close, committed, run, run_to_end, spout, topology

pytestmark = pytest.mark.slow


class Refuse(Bolt):
    """Fails whatever it gets."""

    def execute(self, tup, collector):
        collector.fail(tup, "refused")


def test_given_up_message_goes_to_a_topic_unchanged_and_returns_by_replay(kafka, name, capsys):
    dlq = f"{name}.dlq"
    kafka.create(dlq)
    kafka.produce(name, ["good"], kafka_partition=1)
    kafka.produce(name, ["poison"], key="k", kafka_partition=1, headers={"trace": "ab"})
    own = spout(kafka.brokers, name, stop_at_end=True, dead_letters=dlq, retry=RetryPolicy(max_retries=1))
    engine = run_to_end(topology(name, own, Keep(name, lambda tup: tup["line"] == "poison")))
    assert engine.ledger.metrics.of("messages").dead_letters == 1
    assert committed(kafka.brokers, name)[1][0] == 2
    began = time.monotonic()
    (letter,) = read_topic(ClientSettings(kafka.brokers), dlq).letters
    assert time.monotonic() - began < READ_SECS, "a short topic is read to its end, and not until nothing has come"
    assert (letter.source, letter.position, letter.attempts_in_all) == (f"{name}/1", 1, 2)
    assert (letter.raw.key, letter.raw.value, letter.raw.headers) == (b"k", b"poison", (("trace", b"ab"),))
    assert "is bad" in letter.last.reason
    headers = dict(message_of(letter).headers)
    assert headers["__streams.errors.exception"] == b"ValueError"
    assert (headers["__streams.errors.topic"], headers["__streams.errors.offset"]) == (name.encode(), b"1")
    where = f"kafka:{kafka.brokers}/{dlq}"
    assert main(["dlq", "list", where]) == 0
    assert f"messages[1] {name}/1@1, 2 attempts" in capsys.readouterr().out
    assert main(["dlq", "show", where, letter.id[:8]]) == 0
    shown = capsys.readouterr().out
    assert all(f"attempt {number}, root " in shown for number in (1, 2)), "the story of each attempt"
    assert f"{name}/1@1" in shown
    assert "exception in bolt0[" in shown
    assert "Traceback" in shown
    assert main(["dlq", "replay", where]) == 0
    assert "1 letter(s) replayed" in capsys.readouterr().out
    SEEN[name].clear()
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    assert [(row["line"], row["partition"], row["offset"]) for row in SEEN[name]] == [("poison", 1, 2)]
    assert main(["dlq", "replay", where]) == 0
    assert "0 letter(s) replayed" in capsys.readouterr().out


def test_a_letter_has_the_headers_of_kafka_streams_dead_letter_queue(kafka, name):
    """Their names are those of KIP-1034, and all of them are there whatever the cause is."""
    kafka.create(f"{name}.dlq")
    kafka.produce(name, ["a", "b"], kafka_partition=2)
    for bolt_, number in ((Refuse(), 0), (Keep(name, lambda tup: True), 1)):
        own = spout(kafka.brokers, name, group=f"{name}{number}", stop_at_end=True, dead_letters=f"{name}.dlq")
        run_to_end(topology(f"{name}{number}", own, bolt_, max_attempts=1))
    letters = sorted(read_topic(ClientSettings(kafka.brokers), f"{name}.dlq").letters, key=lambda one: one.last.cause)
    assert [letter.last.cause for letter in letters] == ["exception", "exception", "fail", "fail"]
    for letter in letters:
        headers = {key: value.decode() for key, value in message_of(letter).headers}
        names = ("exception", "message", "stacktrace", "topic", "partition", "offset")
        told = {key: headers[f"__streams.errors.{key}"] for key in names}
        assert (told["topic"], told["partition"], told["offset"]) == (name, "2", str(letter.position))
        assert told["message"] == letter.last.reason != ""
        if letter.last.cause == "exception":
            assert told["exception"] == "ValueError"
            assert told["stacktrace"].startswith("Traceback")
        else:
            assert (told["exception"], told["stacktrace"]) == ("fail", "")


def test_an_unreadable_message_is_a_dead_letter_in_its_original_form(kafka, name):
    kafka.create(f"{name}.dlq")
    kafka.produce(name, [b"{no json"], kafka_partition=0)
    own = spout(kafka.brokers, name, value="json", outputs=["v"], stop_at_end=True, dead_letters=f"{name}.dlq")
    run_to_end(topology(name, own))
    (letter,) = read_topic(ClientSettings(kafka.brokers), f"{name}.dlq").letters
    assert letter.raw.value == b"{no json"
    assert letter.last.cause == "unreadable"


class Once(Spout):
    outputs = ["n", "kind"]

    def next_tuple(self, collector):
        if not hasattr(self, "given"):
            self.given = True
            collector.emit([7, "odd"], message_id="job-7")


def test_dead_letters_of_any_spout_can_go_to_a_topic(kafka, name, tmp_path, capsys):
    kafka.create(f"{name}.dlq")
    (tmp_path / "lines.txt").write_text("good\npoison\n")
    builder = TopologyBuilder(name, Config(max_attempts=1))
    letters = KafkaDeadLetters(kafka.brokers, f"{name}.dlq", client={"client.id": "letters"})
    builder.set_spout("lines", TextSpout(str(tmp_path / "lines.txt")), dead_letters=letters)
    builder.set_spout("jobs", Once(), dead_letters=letters)
    refuses = Keep(name, lambda tup: "line" not in tup or tup["line"] == "poison")
    builder.set_bolt("keep", refuses).shuffle_grouping("lines").shuffle_grouping("jobs")
    engine = LocalEngine(builder.build())
    counts = engine.ledger.metrics.of
    run(engine, lambda: counts("lines").dead_letters == counts("jobs").dead_letters == 1)
    close(engine)
    where = f"kafka:{kafka.brokers}/{name}.dlq"
    found = {letter.component: letter for letter in read_topic(ClientSettings(kafka.brokers), f"{name}.dlq").letters}
    assert found["lines"].values()[0]["line"] == "poison"
    assert found["lines"].position == 5
    assert (found["jobs"].message_id, found["jobs"].values()) == ("'job-7'", [{"n": 7, "kind": "odd"}])
    assert [letter.raw for letter in found.values()] == [None, None]
    assert main(["dlq", "list", where]) == 0
    assert "jobs[0] message 'job-7', 1 attempt" in capsys.readouterr().out
    assert main(["dlq", "replay", where, "--spout", "jobs"]) == 1
    assert "0 letter(s) replayed, 0 tuple(s); 1 could not be" in capsys.readouterr().err


def test_the_letter_of_a_message_that_is_gone_is_not_replayed_as_an_empty_one():
    attempt = Attempt(1, "root", "fail", "no", "keep", 0, 3, None, 40)
    letter = DeadLetter("ab", "t", "1", "messages", 0, (attempt,), source="orders/2", position=17, note="it is gone")
    message = message_of(letter)
    assert dict(message.headers)["__streams.errors.offset"] == b"17"
    assert letter_of(message) == letter
    assert letter_of(message).raw is None
