"""Savepoints and copies of checkpoints on Spark: beside the other topology, instead of it, with another shape."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import TopologyBuilder
from sparkbolt.api.running import RunningTopology
from sparkbolt.api.topology import Topology
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.driver.ledger.origin import origin_of, successor_of
from sparkbolt.errors import CheckpointError, WrongUseError
from sparkbolt.faces.cli import checkpoints
from sparkbolt.files.local import LocalFiles
from sparkbolt.spark.checkpoint import identity_in
from sparkbolt.spark.state_reading import StoredState
from sparkbolt.testing import TopologyTestDriver
from tests.patience import PATIENCE_SECS
from tests.spark.test_changing import KEYS, CountKeys, Numbers
from tests.unit.control.test_home import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(5 * PATIENCE_SECS)]


def topology(directory: Path, out: str, tasks: int = 2) -> Topology:
    builder = TopologyBuilder("copied")
    builder.set_spout("numbers", Numbers(f"{directory}/limit"))
    builder.set_bolt("count", CountKeys(f"{directory}/counts-{out}"), tasks).fields_grouping("numbers", ["n"])
    builder.set_bolt("lines", JsonLinesBolt(f"{directory}/lines-{out}")).shuffle_grouping("numbers")
    return builder.build()


def allow(directory: Path, limit: int) -> None:
    """Let the spout read up to a limit."""
    Path(directory, "new").write_text(str(limit))
    os.replace(directory / "new", directory / "limit")


def goes_to(running: RunningTopology, directory: Path, limit: int) -> None:
    """Let the spout read up to a limit, and wait until it has."""
    allow(directory, limit)
    assert wait_for(lambda: running.metrics().of("numbers").acked == limit, PATIENCE_SECS)


def each_up_to(limit: int) -> Counter[int]:
    return Counter(number % KEYS for number in range(limit))


def counted(path: Path, before: Counter[int], after: Counter[int]) -> None:
    """Each key was counted from one number to the other, without a gap, and without a repeat."""
    lines = Counter(path.read_text().splitlines())
    assert lines == Counter(f"{key} {n}" for key in after for n in range(before[key] + 1, after[key] + 1))


def counts_in(place: str, spark: Any) -> Counter[int]:
    """The counts of a checkpoint, by key."""
    read = StoredState.of(place, None, spark)
    kept = read.state_of("count")
    return Counter({key: kept.get(key) for key in range(KEYS) if kept.get(key)})


def a_test_goes_on_with_the_savepoint(place: str, directory: Path, saved: Counter[int]) -> None:
    """Without Spark, and with other numbers of tasks and another id."""
    before = {name: LocalFiles(place).read(name) for name in ("topology", "identity", "origin")}
    for tasks in (2, 5):
        builder = TopologyBuilder("copied")
        builder.set_spout("numbers", Numbers(f"{directory}/limit"))
        counting = CountKeys(f"{directory}/counts-test")
        builder.set_bolt("totals", counting, tasks, renamed_from="count").fields_grouping("numbers", ["n"])
        builder.set_bolt("lines", JsonLinesBolt(f"{directory}/lines-test")).shuffle_grouping("numbers")
        with TopologyTestDriver.from_checkpoint(builder, place) as driver:
            assert {key: driver.state("totals").get(key) for key in saved} == saved
            driver.feed("numbers", {"n": 7}, message_id=1)
            driver.run_until_idle()
            assert driver.acked("numbers") == [1]
            assert driver.state("totals").get(7) == saved[7] + 1
            assert sorted(driver.state("totals").keys()) == sorted(saved)
    builder = TopologyBuilder("copied")
    builder.set_spout("numbers", Numbers(f"{directory}/limit"))
    builder.set_bolt("count", CountKeys("counts"), 2).shuffle_grouping("numbers")
    with pytest.raises(CheckpointError, match="its tuples would meet the state of other ones"):
        TopologyTestDriver.from_checkpoint(builder, place)
    assert {name: LocalFiles(place).read(name) for name in before} == before


def test_a_savepoint_of_a_running_topology_begins_another_one_beside_it_and_one_instead_of_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SPARKBOLT_HOME", str(tmp_path / "home"))
    state, trial, back = str(tmp_path / "state"), str(tmp_path / "trial"), str(tmp_path / "back")
    allow(tmp_path, 0)
    with topology(tmp_path, "old").start(spark=spark, checkpoint=state) as running:
        goes_to(running, tmp_path, 100)
        allow(tmp_path, 300)  # it is copied while it works
        place = running.savepoint("mid")
        with pytest.raises(WrongUseError, match="there is a savepoint 'mid' already"):
            running.savepoint("mid")
        with pytest.raises(WrongUseError, match="cannot have the name"):
            running.savepoint("../mid")
        goes_to(running, tmp_path, 300)
    origin = origin_of(LocalFiles(place), place)
    assert origin is not None
    saved = each_up_to(sum(counts_in(place, spark).values()))
    assert counts_in(place, spark) == saved, "the savepoint has the state after one micro-batch"

    with pytest.raises(CheckpointError, match="is a savepoint, which stays as it is"):
        topology(tmp_path, "beside").start(spark=spark, checkpoint=place)
    with pytest.raises(CheckpointError, match="say which of the two goes on"):
        topology(tmp_path, "beside").start(spark=spark, checkpoint=trial, savepoint=place)
    assert not os.path.exists(trial), "nothing is copied before that"
    new = topology(tmp_path, "beside", tasks=3)
    with new.start(spark=spark, checkpoint=trial, savepoint=place, copy="beside", apply=True) as running:
        goes_to(running, tmp_path, 440)
    counted(tmp_path / "counts-beside", saved, each_up_to(440))
    with new.start(spark=spark, checkpoint=trial, savepoint=place) as running:  # the same command goes on
        goes_to(running, tmp_path, 460)
    counted(tmp_path / "counts-beside", saved, each_up_to(460))

    a_test_goes_on_with_the_savepoint(place, tmp_path, saved)
    with topology(tmp_path, "old").start(spark=spark, checkpoint=state) as running:
        goes_to(running, tmp_path, 480)
    counted(tmp_path / "counts-old", Counter(), each_up_to(480))
    ids = {identity_in(LocalFiles(one)) for one in (state, trial, place)}
    assert len(ids) == 3

    with topology(tmp_path, "back").start(spark=spark, checkpoint=back, savepoint=place, copy="instead") as running:
        goes_to(running, tmp_path, 500)
    counted(tmp_path / "counts-back", saved, each_up_to(500))
    assert identity_in(LocalFiles(back)) not in ids, "the other one has gone on after the savepoint"
    with pytest.raises(CheckpointError, match=f"its topology goes on with {back}"):
        topology(tmp_path, "old").start(spark=spark, checkpoint=state)
    assert not [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]


def test_a_copy_goes_on_instead_of_a_checkpoint_exactly_where_that_one_was(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARKBOLT_HOME", str(tmp_path / "home"))
    state, moved = str(tmp_path / "state"), str(tmp_path / "elsewhere" / "state")
    allow(tmp_path, 0)
    with topology(tmp_path, "out").start(spark=spark, checkpoint=state) as running:
        goes_to(running, tmp_path, 100)
        with pytest.raises(CheckpointError, match="is in use"):
            checkpoints.copy(state, moved)
    assert checkpoints.copy(state, moved) == 0
    assert "its first start needs a decision" in capsys.readouterr().out
    with pytest.raises(CheckpointError, match="needs your decision"):
        topology(tmp_path, "out", tasks=3).start(spark=spark, checkpoint=moved, copy="instead")
    assert successor_of(LocalFiles(state)) is None, "a start that is refused stops no other topology"
    with topology(tmp_path, "out").start(spark=spark, checkpoint=moved, copy="instead") as running:
        goes_to(running, tmp_path, 300)
        with pytest.raises(CheckpointError, match=f"its topology goes on with {moved}"):
            topology(tmp_path, "out").start(spark=spark, checkpoint=state)
    counted(tmp_path / "counts-out", Counter(), each_up_to(300))
    lines = [line for file in (tmp_path / "lines-out").glob("part*") for line in file.read_text().splitlines()]
    assert len(lines) == 300
    assert identity_in(LocalFiles(moved)) == identity_in(LocalFiles(state))
