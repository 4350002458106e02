"""State on Spark, read from outside: in Python, as a DataFrame, by operators and on the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.control.operator import Operator
from sparkbolt.errors import StateError, WrongUseError
from sparkbolt.faces.cli import stored_state
from sparkbolt.faces.ui.app import make_app
from sparkbolt.spark import state_reading
from sparkbolt.spark.checkpoint_files import open_files
from sparkbolt.spark.session import running_session
from sparkbolt.spark.state_reading import StoredState
from sparkbolt.spouts import GeneratorSpout
from tests.patience import PATIENCE_SECS
from tests.unit.control.test_home import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3 * PATIENCE_SECS)]
KEYS = ["be", 7, "7", date(2026, 1, 2), ("be", 7), "or", "not"]
TASKS = 3


class Price:
    """A class of the user's."""

    def __init__(self, cents: int) -> None:
        self.cents = cents


class Keep(BasicBolt):
    """Keeps each key with the number of its tuple in a key-value state, and an object of the user's in an attribute."""

    outputs: list[str] = []

    def init_state(self, state: Any) -> None:
        self.table = state

    def prepare(self, context: Any) -> None:
        self.last = Price(0)

    def execute(self, tup: Any, collector: Any) -> None:
        self.table.put(KEYS[tup["n"]], tup["n"])
        self.last = Price(tup["n"])


@pytest.fixture(scope="module")
def kept(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """A topology that has processed all, and still runs; and its checkpoint."""
    directory = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARKBOLT_HOME", str(directory / "home"))
        builder = TopologyBuilder("keeping", Config())
        spout = GeneratorSpout(lambda: ([n] for n in range(len(KEYS))), outputs=["n"])
        builder.set_spout("numbers", spout)
        builder.set_bolt("keep", Keep(), TASKS).fields_grouping("numbers", ["n"])
        running = builder.build().start(spark=spark, checkpoint=str(directory / "state"))
        try:
            assert wait_for(lambda: running.metrics().of("numbers").acked == len(KEYS), PATIENCE_SECS)
            yield running, str(directory / "state")
        finally:
            running.stop()


def test_a_running_topology_gives_its_keys_and_reads_a_task_only_when_it_is_needed(kept: Any) -> None:
    state = kept[0].state("keep")
    assert state.get("nothing", "none") == "none"
    assert {key: state.get(key) for key in KEYS} == {key: number for number, key in enumerate(KEYS)}
    assert (len(state), sorted(map(str, state.keys()))) == (len(KEYS), sorted(map(str, KEYS)))
    assert max(one["last"].cents for one in state.attributes()) == len(KEYS) - 1, "the user's own class"
    with pytest.raises(WrongUseError, match="'numbers' keeps no state"):
        kept[0].state("numbers")


def test_the_state_is_a_dataframe_in_json_or_in_types_of_sparks(kept: Any, spark: Any) -> None:
    state = kept[0].state("keep")
    rows = state.to_df().collect()
    keys = {row["key"]: int(row["value"]) for row in rows if row["attribute"] is None}
    assert keys == {'"be"': 0, "7": 1, '"7"': 2, '"2026-01-02"': 3, '["be", 7]': 4, '"or"': 5, '"not"': 6}
    assert {row["component"] for row in rows} == {"keep"}
    attributes = [(row["task"], row["key"]) for row in rows if row["attribute"] == "last"]
    assert sorted(attributes) == [(task, None) for task in range(TASKS)]
    assert "Price(cents=6)" in "".join(row["value"] for row in rows)
    typed = state.to_df(key="string", value="bigint").where("attribute is null")
    assert typed.where("key in ('be', 'or')").agg({"value": "sum"}).first()[0] == 5
    assert typed.where("key = '2026-01-02'").first()["value"] == 3
    typed.createOrReplaceGlobalTempView("kept")
    assert spark.sql("select value from global_temp.kept where key = 'not'").collect() == [(6,)]
    own = spark.createDataFrame([("be",)], "key string")
    assert own.join(typed, "key").select("value").collect() == [(0,)]


def asked(operator: Operator, path: str) -> tuple[int, Any]:
    with TestClient(make_app(operator, token="0123456789abcdef"), base_url="http://localhost") as client:
        answer = client.get(f"/api/v2/topologies/keeping/state{path}")
        return answer.status_code, answer.json()


def checked_over_rest(operator: Operator) -> None:
    status, sizes = asked(operator, "")
    assert (status, sum(one["keys"] for one in sizes["tasks"]), len(sizes["tasks"])) == (200, len(KEYS), TASKS)
    assert all(one["bytes"] > 0 and one["attributes"] == ["last"] for one in sizes["tasks"])
    status, page = asked(operator, "/keep?first=5")
    assert (status, page["count"], len(page["entries"])) == (200, len(KEYS) + TASKS, 5)
    assert "Price(cents=" in page["entries"][0]["value"], "no object of the user's is made"
    for key, number in (("be", 0), ("7", 1), ('"7"', 2), ("2026-01-02", 3), ('["be", 7]', 4)):
        status, found = asked(operator, f"/keep?key={key}")
        assert (status, [one["value"] for one in found["entries"]]) == (200, [number]), key
    assert asked(operator, "/keep?key=bee")[1]["detail"] == "'keep' has no key 'bee': did you mean 'be'?"
    assert asked(operator, "/kep")[0] == asked(operator, "/keep?key=bee")[0] == 404
    assert asked(operator, "/keep?as_of=9999")[0] == 404
    assert asked(operator, "/keep?first=0")[0] == 400


def test_operators_read_the_state_of_a_running_topology_through_it(kept: tuple[Any, str]) -> None:
    home = str(Path(kept[1]).parent / "home")
    checked_over_rest(Operator(home, open_files=open_files))


def test_all_of_a_checkpoint_is_shown_and_exported(kept: tuple[Any, str], capsys: pytest.CaptureFixture[str]) -> None:
    place = kept[1]
    stored_state.state(place, "keep", '"7"', json=True)
    assert json.loads(capsys.readouterr().out)["value"] == 2
    stored_state.state(place, "keep", "2026-01-02")
    assert capsys.readouterr().out.split()[1:3] == ['"2026-01-02"', "3"]
    stored_state.state(place, export=f"{place}/../all.parquet")
    stored_state.state(place, "keep", export=f"{place}/../all.jsonl")
    assert capsys.readouterr().out.startswith(f"{len(KEYS) + TASKS} keys and attributes of micro-batch")
    lines = [json.loads(line) for line in Path(place, "../all.jsonl").read_text().splitlines()]
    table = pq.read_table(f"{place}/../all.parquet").to_pylist()
    keys = sorted(map(str, ("be", 7, "7", "2026-01-02", ["be", 7], "or", "not")))
    assert sorted(str(line["key"]) for line in lines if "key" in line) == keys
    assert sorted(str(json.loads(row["key"])) for row in table if row["attribute"] is None) == keys


def test_state_is_read_with_the_spark_of_the_process_whatever_thread_asks(
    kept: tuple[Any, str], spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    monkeypatch.setattr(state_reading, "make_session", None)

    def read() -> None:
        found.append(running_session())
        found.append(StoredState.of(kept[1]).tasks("keep"))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    session, views = found
    assert session.sparkContext is spark.sparkContext
    assert sum(map(len, views)) == len(KEYS)


def test_a_task_that_cannot_be_read_is_named_with_the_reason(
    kept: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(view: Any) -> Any:
        return {}[view.bytes] if view.bytes else None

    monkeypatch.setattr(state_reading, "sizes_of", damaged)
    with pytest.raises(StateError, match=r"task 0 of 'keep': KeyError"):
        StoredState.of(kept[1]).sizes()


def test_operators_read_the_state_of_a_topology_that_has_ended_from_its_checkpoint(kept: tuple[Any, str]) -> None:
    running, place = kept
    running.stop()
    home = str(Path(place).parent / "home")
    checked_over_rest(Operator(home, open_files=open_files, read_state=StoredState.of))
    with pytest.raises(StateError, match=f"use `sparkbolt state {place}`"):
        Operator(home, open_files=open_files).state("keeping")
