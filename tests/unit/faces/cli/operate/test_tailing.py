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
from tests.unit.control.fake import FakeOperator
from tests.unit.control.shop import log_line

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
    assert printed("tail", "orders", "--last", "2") == (
        "2026-01-01 12:19:58.200Z  WARNING  enrich[2] micro-batch 8108 root 9f3cb748b5b8d044 | KeyError: 'sku': "
        "{'customer': 'c-118'}; its message is given again in 4 s\n"
        "2026-01-01 12:19:59.100Z  ERROR    enrich[3] micro-batch 8109 | cannot reach prices.internal: connection "
        "refused; its trees wait until it is back\n"
    )
    assert printed("tail", "orders", "revenue").count("\n") == 12
    assert printed("tail", "orders", "--search", "KeyError").count("\n") == 12


def test_a_wrong_option_is_reported_with_the_nearest_one(printed: Printed) -> None:
    assert "unrecognized arguments: --folow: did you mean '--follow'?" in printed("tail", "orders", "--folow", code=2)
    assert "unrecognized arguments: more" in printed("tail", "orders", "revenue", "more", code=2)
    assert "arguments are required: TOPOLOGY" in printed("tail", "-f", code=2)


def test_a_topology_without_a_log_says_how_to_get_one(printed: Printed, fake: FakeOperator) -> None:
    fake.lines = []
    fake.known[0]["log_directory"] = None
    said = printed("tail", "orders", code=1)
    assert said.startswith("sparkbolt: topology 'orders' writes no log files: start it with --log-dir DIR")
    assert "no component 'enrihc': did you mean 'enrich'?" in printed("tail", "orders", "enrihc", code=2)
    assert "no topology 'ordres'" in printed("tail", "ordres", code=2)


def test_a_line_cannot_send_control_codes_to_the_terminal(printed: Printed, fake: FakeOperator) -> None:
    fake.lines = [log_line("\x1b[31mred\x07"), log_line("two\nlines")]
    assert printed("tail", "orders") == (
        "2026-01-01 12:20:00.000Z  WARNING  | \\x1b[31mred\\x07\n2026-01-01 12:20:00.000Z  WARNING  | two\n    lines\n"
    )


def test_files_of_this_machine_are_followed_through_rotations(tmp_path: Path, fake: FakeOperator) -> None:
    fake.known[0]["log_directory"] = str(tmp_path)
    fake.log = lambda topology, **wanted: last_lines(str(tmp_path), "orders", **wanted)  # type: ignore[method-assign, assignment, misc]
    engine, before = logging.getLogger("sparkbolt"), logging.getLogger("sparkbolt").level
    engine.setLevel("INFO")
    try:
        with TopologyLog(tmp_path, "orders", bytes_max=400, files_max=9):
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
    fake.known[0]["log_directory"] = None
    source = Newest(fake, fake.known[0], None, "")  # type: ignore[arg-type]
    shown = [one["text"] for one in source.first(2)]
    texts = [one["text"] for one in fake.lines[-2:]]
    news = ["one", "", "two"]

    def sleep(secs: float) -> None:
        text = news.pop(0) if news else ""
        fake.lines += [log_line(text)] if text else []
        if not news:
            fake.known[0]["state"] = TopologyState.ENDED

    follow(fake, "orders", source, lambda lines: shown.extend(one["text"] for one in lines), sleep)  # type: ignore[arg-type]
    assert shown == [*texts, "one", "two"]


@pytest.mark.parametrize("place", ["first", "show", "more"])
def test_ctrl_c_stops_following(printed: Printed, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    places = {"first": (Newest, "first"), "show": (Shown, "__call__"), "more": (Newest, "more")}
    monkeypatch.setattr(*places[place], interrupted)
    printed("tail", "orders", "--follow")
