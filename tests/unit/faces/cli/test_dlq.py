"""``sparkbolt dlq`` on a file of letters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkbolt.api.dead_letters import RawMessage
from sparkbolt.control.letters.stores import LetterFile
from sparkbolt.faces.cli import main
from sparkbolt.files.local import append_lines
from tests.unit.api.test_dead_letters import attempt, letter


@pytest.fixture
def path(tmp_path: Path) -> str:
    letters = [
        letter(
            "aaaa1111", attempts=(attempt(1), attempt(2, cause="exception", reason="ValueError: be", traceback="T"))
        ),
        letter("aaaa2222", tuples=(), note="not JSON", raw=RawMessage(b"{", b"k"), position=50),
        letter("bbbb3333", tuples=((b"x",),), position=60),
        letter("cccc4444", tuples=(("one",), ("two",)), attempts_left_out=98, position=70),
    ]
    path = str(tmp_path / "dead.jsonl")
    append_lines(path, [one.to_line() for one in (*letters, letters[0])])
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["dlq", *arguments]) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def test_list_shows_the_newest_dead_letters_with_component_and_reason(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(capsys, "list", f"file:{path}", "--last", "4").splitlines()
    assert lines[0] == "1970-01-01 00:00:01.500Z  aaaa1111  lines[0] a.txt@40, 2 attempts"
    assert lines[1] == "    exception in count[0]: ValueError: be"
    assert lines[6].endswith("lines[0] a.txt@70, 99 attempts")
    assert lines[8] == "4 dead letter(s), 4 shown, 0 replayed"
    assert lines[9] == "causes: fail 3, exception 1"
    assert lines[10].startswith("1 line(s) repeat the id of another letter")


def test_messages_of_files_with_one_name_are_listed_with_the_folders_that_distinguish_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "dead.jsonl")
    sources = ("/logs/web-1/access.log", "/logs/web-2/access.log#17-5-4fd786f4855f5fa2", "orders/3")
    letters = [letter(f"aaaa{number}", source=source) for number, source in enumerate(sources)]
    append_lines(path, [one.to_line() for one in letters])
    found = [line.split("  ")[2] for line in printed(capsys, "list", path).splitlines()[:6:2]]
    assert found == [f"lines[0] {name}@40, 1 attempt" for name in ("web-1/access.log", "web-2/access.log", "orders/3")]
    shown = printed(capsys, "show", path, "aaaa1", "aaaa2")
    assert "  message   lines[0] access.log@40\n  source    /logs/web-2/access.log\n" in shown
    assert "  message   lines[0] orders/3@40\n  topology" in shown


def test_list_reports_damage_and_unknown_spouts(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    append_lines(path, ["{"])
    assert "1 line(s) are not letters and were skipped: line 6" in printed(capsys, "list", path)
    assert main(["dlq", "list", path, "--json"]) == 0
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (4, "sparkbolt: 1 line(s) are not letters and were skipped: line 6\n")
    assert "choose one of lines" in printed(capsys, "list", path, "--spout", "order", code=2)
    assert "no file or directory of dead letters" in printed(capsys, "list", path + "x", code=2)


def test_a_folder_that_is_no_checkpoint_is_not_one_without_letters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "has no dead letters and no file 'topology'" in printed(capsys, "list", str(tmp_path), code=2)
    (tmp_path / "topology").write_text("{}")
    assert printed(capsys, "list", str(tmp_path)).startswith("0 dead letter(s)")


def test_show_prints_all_attempts_and_the_traceback(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "show", path, "aaaa1", "aaaa2", "cccc")
    assert "  tuple     default: {'line': 'be'}" in text
    assert "  attempt 1, root 33c3a78b9b45efb1: failed 1970-01-01 00:00:01.500Z\n    fail in count[0]: no" in text
    assert "\n    T\n" in text
    assert "key b'k', value b'{'" in text
    assert "note      not JSON" in text
    [body] = [json.loads(line) for line in printed(capsys, "show", path, "bbbb", "--json").splitlines()]
    assert body["tuples"] == [[{"$bytes": "eA=="}]]


def test_replay_appends_tuples_once_and_reports_those_it_cannot_replay(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "again.jsonl"
    said = printed(capsys, "replay", path, "--into", str(into), code=1)
    assert "2 letter(s) replayed, 3 tuple(s); 2 could not be" in said
    assert "aaaa2222 lines[0] a.txt@50: it has no tuples (not JSON)" in said
    assert "bbbb3333 lines[0] a.txt@60: field 'line' holds bytes" in said
    assert [json.loads(line) for line in into.read_text().splitlines()] == [
        {"line": "be"},
        {"line": "one"},
        {"line": "two"},
    ]
    assert "2 replayed" in printed(capsys, "list", path)
    said = printed(capsys, "replay", path, "aaaa1", "--into", str(into))
    assert (
        said == "0 letter(s) replayed, 0 tuple(s); 1 were replayed or discarded before and were skipped "
        "(--again replays them)\n"
    )
    assert printed(capsys, "replay", path, "aaaa1", "--into", str(into), "--again").startswith("1 letter(s)")
    assert len(into.read_text().splitlines()) == 4


def test_replay_writes_each_value_of_json_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = [{"_id": {"$oid": "65"}, "at": {"$date": 5}}, {"$bytes": "YQ=="}, [{"": -0.0}], 1 << 70, "\ud800", None]
    others = [float("inf"), [float("nan")], {1: 2}, {"at": b"x"}]
    letters = [letter(f"{at:08x}", tuples=((value,),)) for at, value in enumerate([*values, *others])]
    append_lines(str(tmp_path / "dead.jsonl"), [one.to_line() for one in letters])
    said = printed(capsys, "replay", str(tmp_path / "dead.jsonl"), "--into", str(tmp_path / "again.jsonl"), code=1)
    assert f"{len(others)} could not be replayed" in said
    written = [json.loads(line)["line"] for line in (tmp_path / "again.jsonl").read_text().splitlines()]
    assert list(map(repr, written)) == list(map(repr, values))


def test_dead_letters_of_a_checkpoint_are_read_and_replayed_by_its_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / "state"
    (checkpoint / "dead-letters").mkdir(parents=True)
    for number, name in ((9, "aaaa"), (10, "bbbb")):
        body = letter(name, position=number).to_line() + "\n"
        (checkpoint / "dead-letters" / f"{number:09d}.jsonl").write_text(body)
    by_checkpoint = printed(capsys, "list", str(checkpoint))
    assert [line.split()[2] for line in by_checkpoint.splitlines()[:-1:2]] == ["aaaa", "bbbb"]
    assert printed(capsys, "list", f"{checkpoint}/dead-letters") == by_checkpoint
    assert "lines[0] a.txt@10" in printed(capsys, "show", str(checkpoint), "bb")
    into = tmp_path / "again.jsonl"
    refused = printed(capsys, "replay", str(checkpoint), code=2)
    assert "is not a checkpoint or the name of a topology" in refused
    assert "or a destination: --into FILE" in refused
    said = printed(capsys, "replay", str(checkpoint), "bb", "--into", str(into))
    assert said == "1 letter(s) replayed, 1 tuple(s)\n"
    assert "2 shown, 1 replayed" in printed(capsys, "list", f"file:{checkpoint}")
    assert "1 letter(s) replayed, 1 tuple(s); 1 were" in printed(capsys, "replay", str(checkpoint), "--into", str(into))
    assert len(into.read_text().splitlines()) == 2
    assert "there is no file or directory of dead letters" in printed(capsys, "list", f"{checkpoint}/gone", code=2)


def test_replay_writes_nothing_to_the_location_of_the_dead_letters(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path(path).read_bytes()
    (tmp_path / "link.jsonl").symlink_to(path)
    (tmp_path / "hard.jsonl").hardlink_to(path)
    (tmp_path / "folder").mkdir()
    for into in (path, f"{path}.replayed", *(str(tmp_path / name) for name in ("link.jsonl", "hard.jsonl"))):
        said = printed(capsys, "replay", path, "--into", into, code=2)
        assert f"--into {into} is the file that the dead letters are read from" in said
        assert "name another file, which a JsonLinesSpout of the topology reads" in said
    assert "is a directory: name a file in it" in printed(
        capsys, "replay", path, "--into", str(tmp_path / "folder"), code=2
    )
    nowhere = str(tmp_path / "nowhere" / "again.jsonl")
    assert f"there is no directory {tmp_path}/nowhere" in printed(capsys, "replay", path, "--into", nowhere, code=2)
    assert Path(path).read_bytes() == before
    assert not Path(f"{path}.replayed").exists()

    folder = tmp_path / "state" / "dead-letters"
    folder.mkdir(parents=True)
    (folder / "000000003.jsonl").write_bytes(before)
    (tmp_path / "other").symlink_to(tmp_path / "state")
    for where in (str(folder), str(tmp_path / "state"), f"{tmp_path}/other"):
        for into in (folder, folder / "000000003.jsonl", folder / "new.jsonl", folder / "replayed"):
            said = printed(capsys, "replay", where, "--into", str(into), code=2)
            assert "is the file that the dead letters are read from" in said
    assert [one.name for one in folder.iterdir()] == ["000000003.jsonl"]


def test_discarded_dead_letters_are_marked_and_not_replayed(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LetterFile(path, {}).discard(["bbbb3333"])
    text = printed(capsys, "list", path)
    assert "bbbb3333  lines[0] a.txt@60, 1 attempt, discarded" in text
    bodies = [json.loads(line) for line in printed(capsys, "list", path, "--json").splitlines()]
    assert {body["id"]: body["discarded"] for body in bodies}["bbbb3333"] is True
    out = printed(capsys, "replay", path, "bbbb", "--into", str(tmp_path / "again.jsonl"))
    assert "1 were replayed or discarded before and were skipped" in out


def test_terminal_control_characters_are_shown_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "dead.jsonl")
    bad = letter("dddd1111", attempts=(attempt(1, cause="exception", reason="ValueError: \x1b[2J"),))
    append_lines(path, [bad.to_line()])
    for command in (("list", path), ("show", path, "dddd")):
        text = printed(capsys, *command)
        assert ("\x1b" not in text, r"\x1b[2J" in text) == (True, True)


def test_replay_and_show_report_damaged_lines(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage = "2 line(s) are not letters and were skipped: line 1, line 3"
    good = [letter("eeee", position=80).to_line(), letter("ffff", position=90).to_line()]
    Path(path).write_text("\n".join(['{"id": 5}', good[0], good[1][:40], good[1]]) + "\n")
    into = str(tmp_path / "again.jsonl")
    assert main(["dlq", "show", path, "eeee"]) == 0
    assert capsys.readouterr().err == f"sparkbolt: {damage}\n"
    assert main(["dlq", "replay", path, "eeee", "--into", into]) == 0, "what was asked for is replayed"
    assert capsys.readouterr() == ("1 letter(s) replayed, 1 tuple(s)\n", f"sparkbolt: {damage}\n")
    assert printed(capsys, "replay", path, "gggg", "--into", into, code=2).startswith(f"sparkbolt: {damage}\n")
    said = printed(capsys, "replay", path, "--into", into, code=1)
    assert said == (
        "sparkbolt: 1 letter(s) replayed, 1 tuple(s); 1 were replayed or discarded before and were skipped "
        f"(--again replays them); {damage}\n"
    )
    assert len(Path(into).read_text().splitlines()) == 2


def lines_of(into: Path) -> list[str]:
    return into.read_text().splitlines()


def test_lines_of_a_text_spout_are_appended_to_a_text_file_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, log, json_lines = (tmp_path / name for name in ("dead.jsonl", "access.log", "again.jsonl"))
    text = letter("a" * 32, fields=("line", "path", "offset"), tuples=(("GET /x", "/logs/access.log", 7),))
    append_lines(str(path), [text.to_line(), letter("b" * 32, position=50, tuples=(("be",),)).to_line()])
    log.write_text("GET /\n")
    said = printed(capsys, "replay", str(path), "--into", str(log), code=2)
    assert "access.log has lines of text, and letter bbbbbbbbbbbb of lines is not a line of text" in said
    assert "omit --into to give the letters back to the spout that they came from" in said
    assert lines_of(log) == ["GET /"], "nothing is written before all letters are checked"
    assert not Path(f"{path}.replayed").exists()
    assert printed(capsys, "replay", str(path), "aaaa", "--into", str(log)).startswith("1 letter(s) replayed")
    assert lines_of(log) == ["GET /", "GET /x"]
    printed(capsys, "replay", str(path), "aaaa", "--into", str(json_lines), "--again")
    assert json.loads(json_lines.read_text())["line"] == "GET /x"
    assert "is a compressed file" in printed(capsys, "replay", str(path), "--into", f"{log}.gz", code=2)


def test_letters_are_listed_by_cause_component_text_and_kind(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [json.loads(line) for line in printed(capsys, "list", path, "--kinds", "--json").splitlines()]
    assert [(one["count"], one["cause"], one["reason"]) for one in kinds] == [
        (3, "fail", "no"),
        (1, "exception", "ValueError: be"),
    ]
    text = printed(capsys, "list", path, "--kinds")
    assert f"{kinds[0]['kind']}  3 of lines: fail in count: no" in text
    assert f"`sparkbolt dlq replay {path} --kind {kinds[0]['kind']}`" in text
    assert "1 dead letter(s), 1 shown" in printed(capsys, "list", path, "--kind", kinds[1]["kind"])
    assert "1 dead letter(s), 1 shown" in printed(capsys, "list", path, "--cause", "exception")
    assert "4 dead letter(s)" in printed(capsys, "list", path, "--component", "count")
    assert "0 dead letter(s)" in printed(capsys, "list", path, "--cause", "timeout")
    for option, wrong, said in (
        ("--component", "splt", "component 'splt' here; choose one of count"),
        ("--cause", "rejectd", "cause 'rejectd' here; choose one of"),
        ("--kind", "zz", "kind 'zz' here: --kinds lists the kinds"),
    ):
        assert said in printed(capsys, "list", path, option, wrong, code=2)
    assert "aaaa1111" in printed(capsys, "list", path, "--search", "ValueError")


def test_a_letter_that_failed_again_is_listed_once(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    append_lines(path, [letter("dddd5555", attempts=tuple(attempt(number) for number in (1, 2, 3))).to_line()])
    append_lines(f"{path}.replayed", ["aaaa1111"])
    listed = printed(capsys, "list", path)
    assert "aaaa1111" not in listed
    assert "dddd5555  lines[0] a.txt@40, 3 attempts" in listed
