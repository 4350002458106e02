"""Connectors of Spark as sources and sinks, each on a version that it is released for: exact over ``kill -9``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.services.jars import jars
from tests.versions.connectors import ROWS, topic_of
from tests.versions.others import python_of, run

pytestmark = [pytest.mark.versions]
ALWAYS = {100, 200}
"""The rows that fail at each attempt."""


def exact(kind: str, version: str, connector: str, directory: Path) -> None:
    """Read all rows in runs that are killed and one that is not: each passes once, or is a dead letter."""
    arguments = kind, str(directory), str(jars(connector))
    for moment in ("committed:1",) if kind.startswith("kafka") else ("committed:1", "written:2"):
        killed = run(python_of(version), "tests.versions.connectors", *arguments, moment)
        assert "killed" in killed.stdout, killed.stdout[-2000:] + killed.stderr[-4000:]
    ended = run(python_of(version), "tests.versions.connectors", *arguments, "never")
    said = f"acked {ROWS - len(ALWAYS)} given up {len(ALWAYS)} letters {len(ALWAYS)}"
    assert said in ended.stdout, ended.stdout[-2000:] + ended.stderr[-4000:]
    lines = [line for file in (directory / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    passed = [number for number in range(1, ROWS + 1) if number not in ALWAYS]
    assert sorted(json.loads(line)["n"] for line in lines) == passed
    if not kind.startswith("kafka"):
        assert f"copied {passed}" in ended.stdout


@pytest.mark.spark
def test_rows_of_a_delta_table_are_exact_over_kill_9(tmp_path: Path) -> None:
    exact("delta", "4.2", "delta", tmp_path)


@pytest.mark.spark
def test_rows_of_an_iceberg_table_are_exact_over_kill_9(tmp_path: Path) -> None:
    exact("iceberg", "4.1", "iceberg", tmp_path)


@pytest.mark.service
def test_rows_of_sparks_own_kafka_connector_are_exact_over_kill_9(kafka: str, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    for made in admin.create_topics([NewTopic(topic_of(str(tmp_path)), num_partitions=2)]).values():
        made.result(60)
    exact(f"kafka={kafka}", "4.2", "spark-kafka", tmp_path)
