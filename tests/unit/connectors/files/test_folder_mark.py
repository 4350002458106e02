"""The mark of an output directory: which topologies may write there, and what the refusal says."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import TopologyBuilder
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.api.topology import Topology
from sparkbolt.api.tuples import Origin, Tuple
from sparkbolt.base.exceptions import preparing
from sparkbolt.bolts import JsonLinesBolt, ParquetBolt
from sparkbolt.connectors.files.folder_mark import MARK
from sparkbolt.driver.ledger.generations import Generation
from sparkbolt.errors import CheckpointError
from sparkbolt.faces.cli.check import start_with
from sparkbolt.files import local
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spark.output_ownership import OutputOwnership, forget_uncommitted
from sparkbolt.spouts import GeneratorSpout

OLD, NEW = "a" * 32, "b" * 32


def topology(*outs: Path, name: str = "web", **config: Any) -> Topology:
    builder = TopologyBuilder(name, Config(**config))
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(1)), ["n"]))
    for number, out in enumerate(outs):
        builder.set_bolt(f"out{number}", JsonLinesBolt(out)).shuffle_grouping("numbers")
    return builder.build()


def ownership(checkpoint: Path, *outs: Path, is_lasting: bool = True, is_new: bool = True) -> OutputOwnership:
    """The outputs of a topology whose checkpoint exists, with the id that its directory contains."""
    identity = (checkpoint / "identity").read_text()
    return OutputOwnership(topology(*outs), identity, str(checkpoint), is_lasting=is_lasting, is_new=is_new)


def checkpoint(directory: Path, identity: str) -> Path:
    directory.mkdir()
    (directory / "identity").write_text(identity)
    return directory


def write(out: Path, identity: str, value: int, component: str = "out0") -> None:
    """Write the file of micro-batch 0, as a task does."""
    bolt = JsonLinesBolt(out)
    context = TopologyContext("web", component, 0, 1, 1, Config(), micro_batch_id=0, checkpoint_id=identity)
    bolt.prepare(context)
    bolt.execute(Tuple.of(Origin("numbers", 0, "default", ("n",)), [value]), None)  # type: ignore[arg-type]
    bolt.flush()


def refusal(owned: OutputOwnership) -> str:
    with pytest.raises(CheckpointError) as caught:
        owned.check()
    return str(caught.value)


def test_files_of_an_uncommitted_micro_batch_go_with_the_shape_that_wrote_them(tmp_path: Path) -> None:
    names = (
        "part-000006-old-0",
        "part-000007-old-0",
        "part-000007-old-1",
        "part-000007.1-out0-2",
        "part-000008-out0-0",
    )
    others = ("part-000007-old-more-0", "part-000007-out1-0", "part-000007-old", "_sparkbolt")
    for name in (*names, *others):
        (tmp_path / f"{name}.jsonl").touch()
    (tmp_path / "part-000007-old-1.parquet").touch()
    generation = Generation(1, base=7, renamed={"old": "out0"})
    forget_uncommitted(topology(tmp_path, transactional=True), generation)
    assert len(list(tmp_path.iterdir())) == 10
    forget_uncommitted(topology(tmp_path, tmp_path / "missing"), generation)
    left = {path.name for path in tmp_path.iterdir()}
    kept = {"part-000006-old-0.jsonl", "part-000008-out0-0.jsonl", "part-000007-old-1.parquet"}
    assert left == kept | {f"{name}.jsonl" for name in others}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The checkpoint of a topology that has written into ``out``, and is stopped."""
    old = checkpoint(tmp_path / "state", OLD)
    owned = ownership(old, tmp_path / "out")
    owned.check()
    owned.claim()
    write(tmp_path / "out", OLD, 1)
    return old


def test_a_start_with_another_checkpoint_is_refused_and_changes_nothing(tmp_path: Path, old: Path) -> None:
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    trial = ownership(checkpoint(tmp_path / "trial", NEW), tmp_path / "new", tmp_path / "out", is_lasting=False)
    assert refusal(trial) == (
        f"JsonLinesBolt 'out1': {tmp_path}/out belongs to topology 'web' with checkpoint {old}, and this start with "
        "another checkpoint would replace its files: name another directory; or, if that topology no longer writes "
        f"there, move its files away and remove {tmp_path}/out/{MARK}"
    )
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert not (tmp_path / "new").exists()


def test_the_owner_continues_with_a_second_component_and_after_its_checkpoint_has_moved(
    tmp_path: Path, old: Path
) -> None:
    moved = old.rename(tmp_path / "elsewhere")
    owned = ownership(moved, tmp_path / "out", tmp_path / "out", is_new=False)
    owned.check()
    owned.claim()
    assert json.loads((tmp_path / "out" / MARK).read_text())["checkpoint"] == str(moved)
    write(tmp_path / "out", OLD, 2, "out1")


def test_a_copy_of_the_checkpoint_is_refused_while_the_original_exists(tmp_path: Path, old: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(old, copy)
    text = refusal(ownership(copy, tmp_path / "out", is_new=False))
    assert f"{copy} is a copy of that checkpoint" in text
    shutil.copytree(tmp_path / "out", tmp_path / "copied")
    with_its_own = ownership(copy, tmp_path / "copied", is_new=False)
    with_its_own.check()
    with_its_own.claim()
    assert json.loads((tmp_path / "copied" / MARK).read_text())["checkpoint"] == str(copy)
    (tmp_path / "out" / MARK).unlink()
    ownership(copy, tmp_path / "out", is_new=False).check()


def test_a_run_without_a_checkpoint_that_wrote_nothing_leaves_the_directory_free(tmp_path: Path) -> None:
    trial = checkpoint(tmp_path / "trial", OLD)
    ownership(trial, tmp_path / "out", is_lasting=False).claim()
    other = ownership(checkpoint(tmp_path / "state", NEW), tmp_path / "out")
    assert "topology 'web', which was started without a checkpoint" in refusal(other), "it may still run"
    shutil.rmtree(trial)
    other.check()
    other.claim()
    assert json.loads((tmp_path / "out" / MARK).read_text())["checkpoint_id"] == NEW


def test_a_run_without_a_checkpoint_leaves_its_files_to_nobody(tmp_path: Path) -> None:
    trial = checkpoint(tmp_path / "trial", OLD)
    ownership(trial, tmp_path / "out", is_lasting=False).claim()
    write(tmp_path / "out", OLD, 1)
    shutil.rmtree(trial)
    other = ownership(checkpoint(tmp_path / "state", NEW), tmp_path / "out")
    assert "started without a checkpoint" in refusal(other)
    with pytest.raises(CheckpointError, match="started without a checkpoint"):
        other.claim()


def test_files_without_a_mark_stop_a_new_checkpoint_and_are_those_of_an_old_one(tmp_path: Path, old: Path) -> None:
    (tmp_path / "out" / MARK).unlink()
    new = ownership(checkpoint(tmp_path / "new", NEW), tmp_path / "out")
    assert f"{tmp_path}/out has part files, and no mark {MARK} tells" in refusal(new)
    owned = ownership(old, tmp_path / "out", is_new=False)
    owned.check()
    owned.claim()
    assert json.loads((tmp_path / "out" / MARK).read_text())["checkpoint_id"] == OLD


def test_files_of_other_programs_stop_nobody(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").touch()
    ownership(checkpoint(tmp_path / "new", NEW), tmp_path / "out").check()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"checkpoint_id": 3, "topology": "web"}', '{"other": 1}'])
def test_a_damaged_mark_is_refused_by_its_path(tmp_path: Path, old: Path, content: str) -> None:
    (tmp_path / "out" / MARK).write_text(content)
    owned = ownership(old, tmp_path / "out", is_new=False)
    assert f"the mark {tmp_path}/out/{MARK} is damaged: remove it" in refusal(owned)
    with pytest.raises(CheckpointError, match="is damaged"):
        write(tmp_path / "out", OLD, 2)


def test_a_checkpoint_on_another_file_system_is_never_taken_for_gone(tmp_path: Path) -> None:
    away = OutputOwnership(topology(tmp_path / "out"), OLD, "hdfs://there/state", is_lasting=True, is_new=True)
    away.claim()
    text = refusal(ownership(checkpoint(tmp_path / "new", NEW), tmp_path / "out"))
    assert "with checkpoint hdfs://there/state" in text


@pytest.mark.parametrize("make", [JsonLinesBolt, ParquetBolt])
def test_a_task_marks_a_directory_that_the_driver_cannot_reach_and_refuses_another_owner(
    tmp_path: Path, make: Any
) -> None:
    def context(identity: str) -> TopologyContext:
        return TopologyContext("web", "out", 0, 1, 1, Config(), checkpoint_id=identity)

    make(tmp_path / "out").prepare(context(OLD))
    make(tmp_path / "out").prepare(context(OLD))
    with pytest.raises(CheckpointError, match=f"belongs to topology 'web' with the checkpoint of id {OLD}"):
        make(tmp_path / "out").begin(context(NEW))
    with pytest.raises(CheckpointError), preparing("prepare of 'out'"):
        make(tmp_path / "out").prepare(context(NEW))


class Owned(JsonLinesBolt):
    """Has a context as on Spark, where a checkpoint has an id."""

    def prepare(self, context: TopologyContext) -> None:
        super().prepare(replace(context, checkpoint_id=NEW, rehearsal_directory=None))


def test_a_task_in_the_directory_of_another_checkpoint_stops_the_topology_and_fails_no_tuple(
    tmp_path: Path, old: Path
) -> None:
    builder = TopologyBuilder("web")
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(1)), ["n"]))
    builder.set_bolt("out0", Owned(tmp_path / "out")).shuffle_grouping("numbers")
    with pytest.raises(CheckpointError, match=f"belongs to topology 'web' with checkpoint {old}"):
        LocalEngine(builder.build()).step()


def test_of_two_topologies_that_start_at_the_same_time_one_gets_the_directory(tmp_path: Path) -> None:
    both = [ownership(checkpoint(tmp_path / name, name * 32), tmp_path / "out") for name in ("a", "b")]
    for owned in both:
        owned.check()
    both[0].claim()
    with pytest.raises(CheckpointError, match=f"belongs to topology 'web' with checkpoint {tmp_path}/a"):
        both[1].claim()


def test_a_driver_that_cannot_write_the_directory_leaves_the_mark_to_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "not mounted here")

    owned = ownership(checkpoint(tmp_path / "state", OLD), tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(local, "make_folder", refuse)
        owned.claim()
    assert not (tmp_path / "out").exists()


def test_a_death_before_the_mark_has_its_name_leaves_no_mark(tmp_path: Path, old: Path) -> None:
    (tmp_path / "out" / MARK).rename(tmp_path / "out" / local.temporary_name(MARK))
    ownership(old, tmp_path / "out", is_new=False).claim()
    assert sorted(os.listdir(tmp_path / "out"))[-2:] == [MARK, "part-000000-out0-0.jsonl"]


def test_check_lists_what_a_start_would_refuse_about_the_outputs(tmp_path: Path, old: Path) -> None:
    examined = start_with(topology(tmp_path / "out"), str(checkpoint(tmp_path / "new", NEW)), 1)
    assert examined.is_refused
    assert f"belongs to topology 'web' with checkpoint {old}" in str(examined.mistake)
