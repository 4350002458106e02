"""``sparkbolt errors`` and ``sparkbolt explain`` on a checkpoint, without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from sparkbolt import Config, TopologyBuilder
from sparkbolt.api.function_bolts import bolt
from sparkbolt.api.story import root_text
from sparkbolt.driver.ledger.reader import LedgerReader
from sparkbolt.errors import CheckpointError
from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.stories import open_ledger
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import JsonLinesSpout
from sparkbolt.testing import TopologyTestDriver
from tests.contract.engines import write_checkpoint
from tests.contract.telling import told
from tests.unit.test_stories import fed, topology


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One line failed, one waits, one was traced; one acked, one acked and compacted."""
    directory = tmp_path_factory.mktemp("checkpoint")
    with TopologyTestDriver(topology(lambda tup: tup["line"] == "pair")) as driver:
        fed(driver, "raise", "ack")
        engine = driver._engine
        write_checkpoint(engine, directory)
        (directory / "ledger" / "1.snapshot").write_bytes(engine.ledger.snapshot())
        for number in (0, 1):
            (directory / "ledger" / f"{number}.entry").unlink()
        fed(driver, "pair", "ack")
        driver.advance(timedelta(seconds=5))
        fed(driver, "waits")
        for number in range(2, len(engine.log)):
            (directory / "ledger" / f"{number}.entry").write_bytes(engine.log[number])
            (directory / "spark" / "commits" / str(number)).touch()
        (directory / "ledger" / "9.entry").write_bytes(b"staged and never committed")
    return directory


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def test_errors_lists_failed_trees_with_who_and_why(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, why, closing = printed(capsys, "errors", str(checkpoint)).splitlines()
    assert root.startswith("2026-01-01 00:00:00.000Z  root ")
    assert root.endswith("  lines[0] message 'raise', attempt 1")
    assert why == "    failed by join[0] in micro-batch 0: ValueError: asked to; its spout was notified"
    assert closing == "topology 't': 1 tree(s) failed, 1 shown"


def test_errors_lists_open_and_traced_trees_too(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, why, closing = printed(capsys, "errors", str(checkpoint), "--state", "open").splitlines()
    assert why == "    open held by join[0] since micro-batch 4; open for 0.0 s"
    assert closing == "topology 't': 1 tree(s) are open, 1 shown"
    root, why, _ = printed(capsys, "errors", str(checkpoint), "--state", "acked").splitlines()
    assert root.endswith("lines[0] message 'pair', attempt 1")
    assert why == "    acked in micro-batch 2"


def test_explain_shows_the_path_the_traceback_and_the_next_step(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [story] = open_ledger(str(checkpoint)).failed()
    text = printed(capsys, "explain", story.root, "--checkpoint", str(checkpoint))
    for line in (
        f"root {story.root}: failed",
        "  00:00:00.000Z  sent on by split[0] in micro-batch 0",
        "  00:00:00.000Z  failed by join[0] in micro-batch 0: {'word': 'raise'} from split[0]",
        "  failed    by join[0] in micro-batch 0: ValueError: asked to",
        "  then      its spout was notified",
        "    ValueError: asked to",
    ):
        assert line in text.splitlines()


@pytest.mark.parametrize(
    ("name", "state", "why"),
    [
        ("lines[0]:3", "acked", "its path is unknown: the tree was not traced and is not a retry"),
        ("lines[0]:1", "unknown", "there is no story of it: it was acked, newer stories"),
        ("lines[0]:77", "unknown", "lines[0] has not reached sequence 77 yet"),
        ("lines[0]:2", "acked", ""),
        ("lines[0]:4", "open", "held by join[0] since micro-batch 4"),
    ],
)
def test_explain_reports_what_is_known_about_any_tree(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], name: str, state: str, why: str
) -> None:
    story = json.loads(printed(capsys, "explain", name, "--checkpoint", str(checkpoint), "--json"))
    assert story["state"] == state
    assert story["why"].startswith(why)
    assert bool(story["hops"]) == (name == "lines[0]:2")


def test_a_record_names_all_its_attempts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = TopologyBuilder("told", Config(message_timeout_secs=3, compact_every=2))
    told(builder, str(tmp_path))
    engine = LocalEngine(builder.build())
    while not engine.coordinator.finished:
        if engine.step() is None:
            engine.now_ms += 100
    directory = str(write_checkpoint(engine, tmp_path / "checkpoint"))
    text = printed(capsys, "explain", "numbers@1", "--checkpoint", directory)
    roots = [root_text(tree.key) for tree in engine.ledger.failed if tree.position == 1]
    assert [line for line in text.splitlines() if line.startswith("root ")] == [f"root {r}: failed" for r in roots]
    assert f"  see also  root {roots[1]}: attempt 2, failed" in printed(
        capsys, "explain", roots[0], "--checkpoint", directory
    )


def test_a_directory_that_is_not_a_checkpoint_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no directory" in printed(capsys, "errors", str(tmp_path / "none"), code=2)
    assert "has no file 'topology'" in printed(capsys, "errors", str(tmp_path), code=1)
    assert not list(tmp_path.iterdir()), "looking makes no files"


def test_a_log_that_is_compacted_while_it_is_read_is_read_again(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def breaks_once(files: object, last_commit: int, where: str) -> LedgerReader:
        reads.append(where)
        if len(reads) == 1:
            raise CheckpointError("ledger/2.entry is missing")
        return LedgerReader(files, last_commit, where)  # type: ignore[arg-type]

    monkeypatch.setattr("sparkbolt.driver.ledger.reader.LedgerReader", breaks_once)
    assert len(open_ledger(str(checkpoint)).failed()) == 1
    assert len(reads) == 2


def test_neither_spark_nor_java_is_started(checkpoint: Path) -> None:
    program = (
        "import sys; from sparkbolt.faces.cli import main; "
        f"code = main(['errors', {str(checkpoint)!r}]); "
        "sys.exit(code or any(name.split('.')[0] in ('pyspark', 'py4j') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_end_of_a_source_path_is_enough_if_it_is_unambiguous(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("a", "no JSON\nno more\n"), ("b", "no JSON\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "msgs.jsonl").write_text(text)
    builder = TopologyBuilder("t")
    builder.set_spout("msgs", JsonLinesSpout(str(tmp_path / "*" / "msgs.jsonl"), outputs=["n"]))
    builder.set_bolt("show", bolt(outputs=[])(lambda tup: None)).shuffle_grouping("msgs")
    engine = LocalEngine(builder.build())
    while not engine.coordinator.finished:
        if engine.step() is None:
            engine.now_ms += 100
    directory = str(write_checkpoint(engine, tmp_path / "checkpoint"))

    def explained(name: str, code: int = 0) -> str:
        return printed(capsys, "explain", name, "--checkpoint", directory, code=code)

    whole = f"{tmp_path}/a/msgs.jsonl@8"
    assert f"msgs[0] msgs.jsonl@8, attempt 1 (task 1, sequence 8)\n  source    {tmp_path}/a/msgs.jsonl\n" in explained(
        whole
    )
    assert explained("msgs.jsonl@8") == explained("a/msgs.jsonl@8") == explained(whole)
    assert f"{tmp_path}/b/msgs.jsonl\n" in explained("b/msgs.jsonl@0")
    listed = printed(capsys, "errors", directory)
    assert "msgs[0] a/msgs.jsonl@8, attempt 1\n" in listed, "a list has as much of the path as distinguishes the files"
    assert "msgs[0] b/msgs.jsonl@0, attempt 1\n" in listed
    assert "give more of its name, such as 'a/msgs.jsonl@0'" in explained("msgs.jsonl@0", code=2)
    assert "there is no story of a record 'sgs.jsonl@8'" in explained("sgs.jsonl@8", code=2)
