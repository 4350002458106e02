"""Properties of Kafka's client, against the mock cluster: where they come from, and that nobody prints a secret."""

from __future__ import annotations

import json
import logging

import pytest

from sparkbolt import Config, TopologyBuilder
from sparkbolt.bolts import KafkaBolt
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_cluster import BrokersAwayError
from sparkbolt.connectors.kafka.kafka_dead_letters import read_topic
from sparkbolt.control.letters.topic import client_properties
from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.check import examine, report_lines
from sparkbolt.faces.cli.graph import text_drawing
from sparkbolt.faces.drawing.svg import svg_drawing
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import KafkaSpout
from tests.kafka import Keep, run_to_end, spout, topology

pytestmark = pytest.mark.slow


def test_error_for_unreachable_brokers_names_their_address_without_secrets(name):
    own = KafkaSpout("127.0.0.1:9", name, group=name, request_secs=0.3, client={"sasl.password": "x4!y"})
    with pytest.raises(BrokersAwayError, match=r"no answer from the Kafka brokers at 127\.0\.0\.1:9") as raised:
        LocalEngine(topology(name, own))
    assert "x4!y" not in str(raised.value)


def test_secrets_are_in_no_drawing_story_dead_letter_log_line_or_ledger(kafka, name, capsys, caplog):
    secrets = {"sasl.username": "bob-x4!y", "sasl.password": "x4!y", "ssl.key.password": "x4!y"}
    kafka.create(f"{name}.dlq")
    kafka.produce(name, ["good", "poison"], kafka_partition=0)
    own = spout(kafka.brokers, name, client=secrets, dead_letters=f"{name}.dlq", stop_at_end=True)
    builder = TopologyBuilder(name, Config(max_attempts=1))
    builder.set_spout("messages", own)
    builder.set_bolt("keep", Keep(name, lambda tup: tup["line"] == "poison")).shuffle_grouping("messages")
    builder.set_bolt("write", KafkaBolt(kafka.brokers, f"{name}.out", client=secrets)).shuffle_grouping("messages")
    built = builder.build()
    with caplog.at_level(logging.DEBUG):
        engine = run_to_end(built)
    (letter,) = read_topic(ClientSettings(kafka.brokers), f"{name}.dlq").letters
    examination = examine(built, 2)
    told = [repr(own), repr(own.settings), repr(built), repr(built.components), *report_lines(examination)]
    told += [json.dumps(examination.to_json()), text_drawing(built), svg_drawing(built), letter.to_line(), caplog.text]
    told += [tree.story for tree in engine.ledger.failed] + [entry.decode("latin-1") for entry in engine.log]
    assert len(engine.ledger.failed) == 1
    assert len(engine.log) > 0
    assert [text for text in told if "x4!y" in text] == []


def test_properties_for_the_letters_of_a_topic_come_from_a_file_and_are_never_printed(kafka, name, tmp_path, capsys):
    kafka.create(name)
    file, where = tmp_path / "client.properties", f"kafka:{kafka.brokers}/{name}"
    file.write_text("# of the billing team\n\nclient.id = letters\nsasl.password=x=4!y\n")
    assert client_properties(str(file)) == {"client.id": "letters", "sasl.password": "x=4!y"}
    assert main(["dlq", "list", where, "--client-config", str(file)]) == 0
    assert "0 dead letter(s)" in capsys.readouterr().out
    file.write_text("sasl.password=x4!y\nsecurity.protocol=x4!y\n")
    for command in (["list", where], ["show", where, "ab"], ["replay", where]):
        assert main(["dlq", *command, "--client-config", str(file)]) == 1
        told = capsys.readouterr().err
        assert "Kafka's client refuses its properties" in told, "they have reached the client"
        assert "x4!y" not in told
