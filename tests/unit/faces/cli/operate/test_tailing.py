"""``sparkbolt tail``: the newest lines of a log, and those that come, each once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkbolt.control.documents import TopologyState
from sparkbolt.control.log_reading import last_lines
from sparkbolt.control.logs import TopologyLog
from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.operate import tailing
from sparkbolt.faces.cli.operate.tailing import Newest, Shown, follow
from tests.unit.control.fake import FakeOperator, line

Printed = Callable[..., str]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeOperator:
    found = FakeOperator()
    monkeypatch.setattr(tailing, "operator_of", lambda options: found)
    return found


@pytest.fixture
def printed(fake: FakeOperator, capsys: pytest.CaptureFixture[str]) -> Printed:
    def run(*arguments: str, code: int = 0) -> str:
        assert main(arguments) == code
        out, err = capsys.readouterr()
        return out if code == 0 else err

    return run


def test_tail_shows_the_newest_lines_with_their_time_and_component(printed: Printed) -> None:
    assert printed("tail", "words", "--last", "2") == (
        "2026-01-01 12:19:56.000Z  WARNING  enrich[1] micro-batch 1411 | enrich[1] reported: KeyError: 'language'\n"
        "2026-01-01 12:19:58.000Z  PRINT    count[0] micro-batch 1411 | [('the', 4)]\n"
    )
    assert printed("tail", "words", "count").count("\n") == 1
    assert printed("tail", "words", "--search", "KeyError").count("\n") == 1


def test_a_wrong_option_is_reported_with_the_nearest_one(printed: Printed) -> None:
    assert "unrecognized arguments: --folow: did you mean '--follow'?" in printed("tail", "words", "--folow", code=2)
    assert "unrecognized arguments: more" in printed("tail", "words", "count", "more", code=2)
    assert "arguments are required: TOPOLOGY" in printed("tail", "-f", code=2)


def test_a_topology_without_a_log_says_how_to_get_one(printed: Printed, fake: FakeOperator) -> None:
    fake.lines = []
    said = printed("tail", "words", code=1)
    assert said.startswith("sparkbolt: topology 'words' writes no log files: start it with --log-dir DIR")
    assert "no component 'cuont': did you mean 'count'?" in printed("tail", "words", "cuont", code=2)
    assert "no topology 'wrods'" in printed("tail", "wrods", code=2)


def test_a_line_cannot_send_control_codes_to_the_terminal(printed: Printed, fake: FakeOperator) -> None:
    fake.lines = [line("\x1b[31mred\x07"), line("two\nlines")]
    assert printed("tail", "words") == (
        "2026-01-01 12:20:00.000Z  WARNING  | \\x1b[31mred\\x07\n2026-01-01 12:20:00.000Z  WARNING  | two\n    lines\n"
    )


def test_files_of_this_machine_are_followed_through_rotations(tmp_path: Path, fake: FakeOperator) -> None:
    fake.known[0]["log_directory"] = str(tmp_path)
    fake.log = lambda topology, **wanted: last_lines(str(tmp_path), "words", **wanted)  # type: ignore[method-assign, assignment, misc]
    engine, before = logging.getLogger("sparkbolt"), logging.getLogger("sparkbolt").level
    engine.setLevel("INFO")
    try:
        with TopologyLog(tmp_path, "words", bytes_max=400, files_max=9):
            for number in range(10):
                engine.info("line %d", number)
            source = Newest(fake, fake.known[0], None, "")  # type: ignore[arg-type]
            engine.info("line 10")  # written between the opening of the file and the question
            texts = [one["text"] for one in source.first(3)]
            for number in range(11, 40):
                engine.info("line %d", number)
                if number % 3 == 0:
                    texts += [one["text"] for one in source.more()]
            texts += [one["text"] for one in source.more()]
            source.close()
    finally:
        engine.setLevel(before)
    assert texts == [f"line {number}" for number in range(8, 40)]


def test_a_log_on_another_machine_is_polled_until_the_topology_ends(fake: FakeOperator) -> None:
    source = Newest(fake, fake.known[0], None, "")  # type: ignore[arg-type]
    shown = [one["text"] for one in source.first(2)]
    news = ["one", "", "two"]

    def sleep(secs: float) -> None:
        text = news.pop(0) if news else ""
        fake.lines += [line(text)] if text else []
        if not news:
            fake.known[0]["state"] = TopologyState.ENDED

    follow(fake, "words", source, lambda lines: shown.extend(one["text"] for one in lines), sleep)  # type: ignore[arg-type]
    assert shown == ["enrich[1] reported: KeyError: 'language'", "[('the', 4)]", "one", "two"]


@pytest.mark.parametrize("place", ["first", "show", "more"])
def test_ctrl_c_stops_following(printed: Printed, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    places = {"first": (Newest, "first"), "show": (Shown, "__call__"), "more": (Newest, "more")}
    monkeypatch.setattr(*places[place], interrupted)
    printed("tail", "words", "--follow")
