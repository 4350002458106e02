"""Checkpoints whose last steps disagree: what verify says, what repair does, and that a topology goes on then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.driver.ledger import agreement
from sparkbolt.driver.ledger.generations import Generation, Generations
from sparkbolt.driver.ledger.ledger_files import FORMAT, FORMAT_FILE, begin_life, check_number
from sparkbolt.driver.transaction import Aborts
from sparkbolt.errors import CheckpointError
from sparkbolt.faces.cli import main
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.sim.checkers.acks import Checkers
from sparkbolt.sim.checkers.base import Facts
from sparkbolt.sim.subject import Subject, subject_of
from sparkbolt.sim.world import World
from tests.sim.random_topologies import Jobs
from tests.sim.test_simulate import CountNumbers, behind
from tests.unit.driver.test_commits import Outside, commits, kept

TOPOLOGY = Generations([Generation()]).dumps()


class Stopped(World):
    """A world that is stopped behind a micro-batch, with its offset and commit as files."""

    def begin(self, committed: int) -> None:
        while self.durable.log.last_commit < committed:
            assert self._turn(), "the messages are at their end"

    def files_of_spark(self) -> MemoryFiles:
        """All files of the checkpoint, as they are on a disk."""
        files = self.durable.files
        for number, end in self.durable.log.offsets.items():
            files.files[f"spark/offsets/{number}"] = f"v1\n{{}}\n{end}".encode()
        for number in self.durable.log.commits:
            files.files[f"spark/commits/{number}"] = b"v1\n{}"
        files.files |= {"topology": TOPOLOGY, "spark/metadata": b'{"id":"an id"}'}
        return files

    def read_back(self) -> None:
        """Spark's logs are what the files say now."""
        log, files = self.durable.log, self.durable.files.files
        log.offsets = {
            int(name.rsplit("/", 1)[1]): data.decode().splitlines()[-1]
            for name, data in files.items()
            if name.startswith("spark/offsets/")
        }
        log.commits = {int(name.rsplit("/", 1)[1]) for name in files if name.startswith("spark/commits/")}


def world(spout: Any = None, last: int = 2) -> Stopped:
    subject: Subject = subject_of(behind(CountNumbers(), spout=spout), {"m": [[number] for number in range(60)]}, 12)
    found = Stopped(subject, 1, (), micro_batches=6, checkers=Checkers(Facts(subject, {}), state=False))
    found.begin(last)
    return found


def logged(found: Stopped, number: int) -> Any:
    return json.loads(found.durable.log.offsets[number])


def test_a_checkpoint_between_two_micro_batches_agrees() -> None:
    found = world()
    verdict = agreement.examine(found.files_of_spark())
    assert verdict.mistakes == verdict.put_aside == ()
    assert verdict.last == 2
    assert verdict.facts[0] == "Spark has logged the plans of micro-batches up to 2 and committed them up to 2"


def test_new_checkpoint_is_consistent() -> None:
    verdict = agreement.examine(MemoryFiles())
    assert verdict.facts == ("Spark has logged no micro-batch yet",)
    assert (verdict.mistakes, verdict.last) == ((), -1)


def test_a_plan_of_another_micro_batch_in_an_offset_is_discarded_and_planned_anew() -> None:
    """What a driver without a lock made of it that took committed micro-batches for its next one."""
    found = world(spout=Jobs())
    files = found.files_of_spark()
    files.files["spark/offsets/3"] = files.files["spark/offsets/2"]
    verdict = agreement.examine(files)
    assert verdict.mistakes == (
        "micro-batch 3 is logged and not committed, but its offset holds the plan of micro-batch 2: two drivers have "
        "written here",
    )
    assert (verdict.put_aside, verdict.last, verdict.why_not) == (("spark/offsets/3",), 2, None)
    copy = files.files["spark/offsets/3"]
    assert agreement.repair(files, verdict, "repairs/0", "an id") == ["repairs/0/spark/offsets/3"]
    assert files.files["repairs/0/spark/offsets/3"] == copy
    assert agreement.examine(files).mistakes == ()
    found.read_back()
    found._new_driver()
    assert found.run() is None
    assert not found.checkers.violations
    found.checkers.ended(found.driver)
    assert not found.checkers.violations


@pytest.mark.parametrize("how", ["missing", "damaged", "of another plan"])
def test_a_commit_without_its_entry_is_rolled_back_when_sources_can_be_read_again(how: str) -> None:
    found = world()
    files = found.files_of_spark()
    entry = files.files.pop("ledger/2.entry")
    if how == "damaged":
        files.files["ledger/2.entry"] = entry[:-1]
    if how == "of another plan":
        files.files["ledger/2.entry"] = entry
        offset = {**logged(found, 2), "now_ms": 1}
        files.files["spark/offsets/2"] = f"v1\n{{}}\n{json.dumps(offset)}".encode()
    verdict = agreement.examine(files)
    assert len(verdict.mistakes) == 1, verdict
    assert verdict.mistakes[0].startswith("micro-batch 2 is committed, but ")
    assert (verdict.last, verdict.why_not) == (1, None)
    assert verdict.put_aside == ("spark/commits/2", *(["ledger/2.entry"] if how != "missing" else []))
    agreement.repair(files, verdict, "repairs/0", "an id")
    after = agreement.examine(files)
    assert (after.mistakes, after.last) == ((), 1)


def test_checkpoint_never_goes_back_before_records_already_acked_to_a_queue() -> None:
    files = world(spout=Jobs()).files_of_spark()
    del files.files["ledger/2.entry"]
    verdict = agreement.examine(files)
    assert verdict.put_aside == ()
    assert verdict.why_not is not None
    assert "held records of a Spout, whose queue then has forgotten them" in verdict.why_not


def test_lost_commits_are_repeated_and_lost_offsets_are_not_invented() -> None:
    files = world(last=3).files_of_spark()
    del files.files["spark/commits/2"], files.files["spark/commits/3"]
    verdict = agreement.examine(files)
    assert "commits of what lies between were lost" in verdict.mistakes[0]
    assert (verdict.last, verdict.why_not) == (1, None)
    assert verdict.put_aside == ("spark/offsets/3", "ledger/3.entry", "ledger/2.entry")
    agreement.repair(files, verdict, "repairs/0", "an id")
    assert agreement.examine(files).mistakes == ()
    files = world().files_of_spark()
    del files.files["spark/offsets/2"], files.files["spark/offsets/1"]
    verdict = agreement.examine(files)
    assert "Spark has committed micro-batch 2, but its offsets end with 0" in verdict.mistakes
    assert verdict.why_not == "spark/offsets/2 is missing, behind which Spark would go on"


def test_an_incomplete_commit_does_not_count() -> None:
    files = world().files_of_spark()
    files.files["spark/commits/2"] = b""
    verdict = agreement.examine(files)
    assert verdict.mistakes == ("spark/commits/2 is not whole, so it does not count",)
    assert (verdict.put_aside, verdict.last) == (("spark/commits/2", "ledger/2.entry"), 1)


def test_a_missing_state_is_named() -> None:
    files = world().files_of_spark()
    files.files["spark/commits/2"] = b'v1\n{"stateUniqueIds":{"0":[["id"]]}}'
    verdict = agreement.examine(files)
    assert verdict.mistakes == ("spark/state/0/0 has no state of micro-batch 2 any more (version 3_id)",)
    assert verdict.why_not is not None
    files.files["spark/state/0/0/3_id.changelog"] = b""
    assert agreement.examine(files).mistakes == ()


def without(files: MemoryFiles, *folders: str) -> None:
    for name in [*files.files]:
        if name.split("/")[0] in folders or name in folders:
            del files.files[name]


def on_disk(files: MemoryFiles, directory: Path) -> str:
    for name, data in {**files.files, FORMAT_FILE: str(FORMAT).encode()}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    return str(directory)


def test_missing_lives_are_reported_and_the_next_life_has_a_later_number() -> None:
    found = world(spout=Jobs())
    files = found.files_of_spark()
    known = found.driver.ledger.life
    without(files, "lives")
    verdict = agreement.examine(files)
    assert verdict.mistakes == (f"the ledger knows life {known}, but lives/ tells of none: files were removed",)
    assert (verdict.put_aside, verdict.why_not, verdict.life) == ((), None, known)
    with pytest.raises(CheckpointError, match=rf"^checkpoint x: the ledger knows life {known}, .* checkpoint repair"):
        check_number(0, known, where="checkpoint x")
    assert begin_life(files, "repair", after=verdict.life) == known + 1
    assert agreement.examine(files).mistakes == ()
    found.read_back()
    found._new_driver()
    assert found.driver.ledger.life == known + 2
    assert found.run() is None
    assert not found.checkers.violations


def test_command_recreates_lives_and_the_id_of_the_spark_query(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = world().files_of_spark()
    without(files, "lives", "spark/metadata")
    files.files["spark/.metadata.crc"] = b"of the file that is gone"
    where = on_disk(files, tmp_path)
    assert main(["checkpoint", "verify", where]) == 1
    said = capsys.readouterr().out
    assert "mistake: spark/metadata is missing, without which Spark does not go on" in said
    assert "a repair would create: lives/1\na repair would create: spark/metadata\n" in said
    assert not (tmp_path / "lives").exists()
    assert main(["checkpoint", "repair", where]) == 0
    assert "created: spark/metadata\n" in capsys.readouterr().out
    assert set(json.loads((tmp_path / "spark/metadata").read_bytes())) == {"id"}
    assert not (tmp_path / "spark/.metadata.crc").exists()
    assert main(["checkpoint", "verify", where]) == 0


def test_a_missing_topology_file_cannot_be_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = world().files_of_spark()
    without(files, "topology")
    where = on_disk(files, tmp_path)
    for command in ("verify", "repair"):
        assert main(["checkpoint", command, where]) == 1
        said = capsys.readouterr().out
        assert "mistake: there are committed micro-batches but no file 'topology'\n" in said
        assert "a repair cannot help: nobody knows any more which task runs where; restore" in said


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (b"", "there is nothing in it"),
        (b'{"generations": [{"na', "Unterminated string"),
        (b"\0" * 30, "there is nothing in it"),
        (b"{}", "it has no 'generations'"),
        (b"[1]", "it has another form"),
        (b'{"generations": [{}]}', "it has no 'numbering'"),
    ],
)
def test_a_topology_that_is_damaged_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left: bytes, why: str
) -> None:
    files = world().files_of_spark()
    files.files["topology"] = left
    where = on_disk(files, tmp_path)
    for command in ("verify", "repair"):
        assert main(["checkpoint", command, where]) == 1
        said = capsys.readouterr().out
        assert f"mistake: the file 'topology' is damaged ({why}" in said
        assert "a repair cannot help: nobody knows any more which task runs where; restore" in said
    assert (tmp_path / "topology").read_bytes() == left
    with pytest.raises(CheckpointError, match=r"^checkpoint x: the file 'topology' is damaged \("):
        Generations.read(files, "checkpoint x")


def test_a_topology_file_damaged_before_any_commit_is_moved_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = world(last=-1).files_of_spark()
    files.files |= {"topology": b"", "spark/metadata": b"", "spark/offsets/0": b"v1\n{}\n{}", "lives/0": b""}
    where = on_disk(files, tmp_path)
    assert main(["checkpoint", "repair", where]) == 0
    assert "removed: topology (a copy is repairs/0/topology)\n" in capsys.readouterr().out
    assert not (tmp_path / "topology").exists()


def test_metadata_damaged_before_anything_is_logged_is_reported() -> None:
    files = MemoryFiles()
    files.files["spark/metadata"] = b""
    verdict = agreement.examine(files)
    assert verdict.mistakes[0].startswith("spark/metadata is damaged (there is nothing in it)")
    assert verdict.put_aside == verdict.made == ("spark/metadata",)


@pytest.mark.parametrize("left", [b"", b"{", b'{"id"', b"[]", b'{"id": 3}', b"\0" * 45])
def test_damaged_spark_metadata_is_reported_and_recreated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left: bytes
) -> None:
    files = world().files_of_spark()
    files.files["spark/metadata"] = left
    where = on_disk(files, tmp_path)
    assert main(["checkpoint", "verify", where]) == 1
    said = capsys.readouterr().out
    assert "mistake: spark/metadata is damaged (" in said
    assert "a repair would remove: spark/metadata\na repair would create: spark/metadata\n" in said
    assert main(["checkpoint", "repair", where]) == 0
    assert (tmp_path / "repairs/0/spark/metadata").read_bytes() == left
    assert set(json.loads((tmp_path / "spark/metadata").read_bytes())) == {"id"}
    assert main(["checkpoint", "verify", where]) == 0


def test_the_command_says_what_it_found_and_keeps_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = world()
    files = found.files_of_spark()
    del files.files["ledger/2.entry"]
    on_disk(files, tmp_path)
    for arguments in (["verify"], ["repair", "--dry-run"]):
        assert main(["checkpoint", *arguments, str(tmp_path)]) == 1
        said = capsys.readouterr().out
        assert "mistake: micro-batch 2 is committed, but ledger/2.entry is missing\n" in said
        assert "a repair would remove: spark/commits/2\n" in said
        assert (tmp_path / "spark/commits/2").exists()
    assert main(["checkpoint", "repair", str(tmp_path)]) == 0
    assert "removed: spark/commits/2 (a copy is repairs/0/spark/commits/2)\n" in capsys.readouterr().out
    assert (tmp_path / "repairs/0/spark/commits/2").read_bytes() == b"v1\n{}"
    assert main(["checkpoint", "verify", str(tmp_path)]) == 0
    assert "they agree: the next start continues with micro-batch 2\n" in capsys.readouterr().out
    assert main(["checkpoint", "verify", str(tmp_path / "ledger")]) == 1
    assert "is not a checkpoint of Sparkbolt" in capsys.readouterr().err


def test_a_micro_batch_that_spark_ran_for_its_own_sources_repeats_the_plan_before_it() -> None:
    found = world()
    files = found.files_of_spark()
    for number in range(3):
        plan = files.files[f"spark/offsets/{number}"].decode().splitlines()[-1]
        files.files[f"spark/offsets/{number}"] = f'v1\n{{}}\n{{"logOffset":{number}}}\n{plan}'.encode()
    plan = files.files["spark/offsets/2"].decode().splitlines()[-1]
    files.files["spark/offsets/3"] = f'v1\n{{}}\n{{"logOffset":3}}\n{plan}'.encode()
    verdict = agreement.examine(files)
    assert verdict.mistakes == ()
    assert verdict.last == 2, "and the next start runs it again"


def test_rows_waiting_for_their_commit_are_reported_and_damaged_ones_are_detected(tmp_path: Path, capsys: Any) -> None:
    found = world().files_of_spark()
    rows = commits(found, Outside(), "out")
    rows.stage(2, [kept("out", 0, 7)])
    aborts = Aborts("plan", repeats=1)
    found.write("aborts/3", aborts.dumps())
    where = on_disk(found, tmp_path / "whole")
    assert main(["checkpoint", "verify", where]) == 0
    assert "rows wait for their commit: commits/2.out" in capsys.readouterr().out
    for name in ("commits/2.out", "aborts/3"):
        found.files[name] = found.files[name][:-1] + b"!"
    where = on_disk(found, tmp_path / "damaged")
    assert main(["checkpoint", "verify", where]) == 1
    out = capsys.readouterr().out
    assert "mistake: commits/2.out is missing or damaged: it has the rows that txid 3 of 'out' commits" in out
    assert "mistake: aborts/3 is damaged" in out
    assert "a repair cannot help: this file has no other copy" in out
    assert main(["checkpoint", "repair", where]) == 1
    assert Path(where, "commits/2.out").exists()


def test_a_logged_offset_has_rows_when_a_spark_source_has_advanced() -> None:
    def logged(*ends: str) -> agreement.LoggedOffset:
        return agreement.logged_offset("\n".join(["v1", "{}", *ends, '{"micro_batch_id":1}']).encode())

    assert not logged("-", "-").has_rows(None)
    assert logged("7", "-").has_rows(None)
    assert not logged("7", "-").has_rows(logged("7", "-"))
    assert logged("7", "3").has_rows(logged("7", "-"))
    assert not logged().has_rows(None)
