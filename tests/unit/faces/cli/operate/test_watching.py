"""``sparkbolt list``, ``stats`` and ``top``: what they show, at which width, and what wrong names are told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from sparkbolt.control.documents import ALL_TIME, TopologyState
from sparkbolt.errors import SparkboltError
from sparkbolt.faces.cli import lag, main
from sparkbolt.faces.cli.operate import watching
from sparkbolt.faces.cli.operate.statistics import stats_lines
from tests.unit.control.fake import HOME, NOW_MS, FakeOperator, document, entry

Printed = Callable[..., str]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeOperator:
    found = FakeOperator()
    for module in (watching, lag):
        monkeypatch.setattr(module, "operator_of", lambda options: found)
    monkeypatch.setattr(watching, "now_ms", lambda: NOW_MS)
    monkeypatch.setenv("COLUMNS", "80")
    return found


@pytest.fixture
def printed(fake: FakeOperator, capsys: pytest.CaptureFixture[str]) -> Printed:
    def run(*arguments: str, code: int = 0) -> str:
        assert main(arguments) == code
        out, err = capsys.readouterr()
        return out if code == 0 else err

    return run


# list


def test_list_shows_running_and_dead_topologies_with_their_locations(printed: Printed) -> None:
    assert printed("list") == (
        "name    state   since          batches  trees/s                 lag   open   errors\n"
        "words   active  2 h 0 min        1,412    1,204  1,234,567 messages  7,666  118,021\n"
        "    pid 4711 on bolt-1, Spark http://bolt-1:4040\n"
        "    checkpoint /data/words\n"
        "    12 messages given up: see `sparkbolt dlq list words`\n"
        "orders  dead    2 h 0 min ago       96        0                          6        0\n"
        "    bolt-1, 2025-12-31 10:20Z\n"
        "    checkpoint /data/orders\n"
        "    dead: its process (815) is gone and has not reported how it ended. "
        "Start it again with its checkpoint to continue\n"
    )


def test_list_distinguishes_a_missing_home_from_one_without_topologies(
    fake: FakeOperator, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.known.clear()
    fake.home.trouble = f"the home {HOME} cannot be read: there is no such directory"
    assert main(["list"]) == 0
    assert capsys.readouterr().out == f"no topology is registered: {fake.home.trouble}\n"
    assert main(["list", "--json"]) == 0
    assert capsys.readouterr() == ("", f"sparkbolt: no topology is registered: {fake.home.trouble}\n")


def test_list_all_shows_what_has_ended_and_why(printed: Printed) -> None:
    assert printed("list", "--all").endswith(
        "    bolt-1, 2026-01-01 02:20Z, exit code 0, no checkpoint\n"
        "    ended: its spouts are exhausted, and every tree is finished\n"
    )


def test_two_topologies_of_one_name_are_listed_by_their_ids(printed: Printed, fake: FakeOperator) -> None:
    fake.known.append(entry("words", TopologyState.ACTIVE, 2))
    out = printed("list")
    assert (
        "    id words-1-1767262800, pid 4711 on bolt-1, Spark http://bolt-1:4040\n    checkpoint /data/words\n" in out
    )
    assert (
        "    id words-2-1767262800, pid 4711 on bolt-1, Spark http://bolt-1:4040\n    checkpoint /data/words\n" in out
    )


def test_list_names_the_searched_home_and_the_ended_topologies_if_nothing_runs(
    printed: Printed, fake: FakeOperator
) -> None:
    fake.known = fake.known[2:]
    assert printed("list") == (
        f"no topology is running (home: {HOME}); `sparkbolt list --all` shows 1 that have ended\n"
    )
    fake.known = []
    assert printed("list") == f"no topology is running (home: {HOME})\n"
    assert printed("list", "--json") == ""


def test_list_shows_a_dead_topology_after_a_trial_of_the_same_name(printed: Printed, fake: FakeOperator) -> None:
    dead = entry("shop", TopologyState.DEAD, started_ms=NOW_MS - 9000)
    fake.known = [entry("shop", TopologyState.ENDED, 2, started_ms=NOW_MS - 5000, checkpoint=None), dead]
    assert [json.loads(line)["id"] for line in printed("list", "--json").splitlines()] == [dead["id"]]


# stats


def test_stats_shows_spouts_bolts_the_use_of_time_and_the_newest_errors(fake: FakeOperator) -> None:
    out = "\n".join([*stats_lines(fake.document("words"), "600", NOW_MS, 80), ""])
    assert out.startswith("words: active for 2 h 0 min; last 10 min, 10 min 0 s of it measured")
    assert "spout  emitted  acked  given up  failed attempts                  lag  p99 ms\n" in out
    assert "lines     720k   713k         1            7,000  1,234,567 positions   9,100\n" in out
    assert "enrich     3.60M    3.59M   7,000   7,000  0.97 !          0.32        41.8\n" in out
    assert "time of micro-batches: level 1 71%, read 11%" in out
    assert "  4 s ago, enrich[1] (7,000 times): KeyError: 'language'\n" in out


def test_stats_show_how_far_a_watermark_is_behind(printed: Printed, fake: FakeOperator) -> None:
    document = fake.document("words")
    marks = {"watermark_ms": NOW_MS - 28_177_970_799, "behind_ms": 28_177_970_799, "windows": 1, "late_tuples": 0}
    document["now"]["watermarks"] = {"count": marks}
    fake.documents[document["entry"]["id"]] = document
    assert "count: watermark 2025-02-09 09:07:09.201Z, 326 d 3 h behind\n" in printed("stats", "words")


def test_stats_give_a_remedy_for_late_tuples_only_if_no_bolt_takes_them(printed: Printed, fake: FakeOperator) -> None:
    document = fake.document("words")
    document["now"]["watermarks"] = {"count": {"windows": 1, "late_tuples": 3}}
    [count] = [one for one in document["components"] if one["id"] == "count"]
    fake.documents[document["entry"]["id"]] = document
    assert "count: 3 late tuples were older than the watermark and in no window: raise" in printed("stats", "words")
    count["streams"] = {**count["streams"], "late": ["late_tuple"]}
    document["components"][-1]["inputs"] = [
        {"component": "count", "stream": "late", "grouping": "SHUFFLE", "fields": []}
    ]
    out = printed("stats", "words")
    assert "went to stream 'late'\n" in out
    assert "with_lag" not in out


def test_stats_of_a_component_shows_its_tasks_and_streams(printed: Printed) -> None:
    out = printed("stats", "words", "enrich", "--window", "all")
    assert "bolt enrich, words.Enrich, 2 tasks, reads split by shuffle\n" in out
    assert "execute latency in ms: p50 0.11, p99 4.90, p999 12.0, max 870\n" in out
    assert "\nenrich[1] " in out
    assert "since its first start" in out
    assert "lines[0]: offsets" not in out
    assert "lines-1    234,567 positions\n" in printed("stats", "words", "lines")


def test_stats_show_the_lag_of_files_in_bytes_and_seconds(printed: Printed, fake: FakeOperator) -> None:
    old, new = "/logs/a.log#17-5-4fd786f4855f5fa2", "/logs/b.log#18-5-4fd786f4855f5fa2"
    document = fake.document("words")
    document["components"][0]["position_unit"] = "bytes"
    document["now"].update(lag={"lines": {old: 5_400_000, new: 20_480}}, lag_secs={"lines": {old: 95.2, new: 2.0}})
    fake.documents[document["entry"]["id"]] = document
    assert " 5.2 MB, 1 min 35 s " in printed("stats", "words")
    one = printed("stats", "words", "lines")
    assert "a.log   5.1 MB, 1 min 35 s\n" in one
    assert "b.log           20 KB, 2 s\n" in one
    assert json.loads(printed("stats", "words", "lines", "--json"))["lag_secs"] == {old: 95.2, new: 2.0}
    assert printed("lag", "words").startswith("lines  lag 5.2 MB, 1 min 35 s\nsource ")
    assert json.loads(printed("lag", "words", "--json"))["sources"][0] == {
        "source": old,
        "lag": 5_400_000,
        "secs": 95.2,
    }


def test_lag_of_a_topology_whose_spouts_report_none_says_so(printed: Printed, fake: FakeOperator) -> None:
    found = fake.document("words")
    found["now"]["lag"] = {}
    fake.documents[found["entry"]["id"]] = found
    assert "no spout of topology 'words' has reported a lag" in printed("lag", "words", code=2)


def test_stats_as_json_has_the_requested_window(printed: Printed, fake: FakeOperator) -> None:
    known = fake.document("words")
    assert json.loads(printed("stats", "words", "--json", "--window", "all"))["window"] == json.loads(
        json.dumps(known["windows"][ALL_TIME])
    )
    one = json.loads(printed("stats", "words", "lines", "--json"))
    assert one["numbers"] == known["windows"]["600"]["components"]["lines"]
    assert {task["component"] for task in one["tasks"]} == {"lines"}
    assert one["lag"] == {"lines-0": 1_000_000, "lines-1": 234_567}


@pytest.mark.parametrize("arguments", [["stats", "wrods"], ["stats", "words", "enrihc"], ["stats", "words", "nothing"]])
def test_a_wrong_name_is_a_usage_error_and_is_reported_with_the_nearest_name(
    printed: Printed, arguments: list[str]
) -> None:
    said = printed(*arguments, code=2)
    assert (
        said
        == {
            "wrods": f"sparkbolt: no topology 'wrods' is registered in {HOME}: did you mean 'words'?\n",
            "enrihc": "sparkbolt: topology 'words' has no component 'enrihc': did you mean 'enrich'?\n",
            "nothing": "sparkbolt: topology 'words' has no component 'nothing': there is lines, split, enrich, count, "
            "__acker\n",
        }[arguments[-1]]
    )


def test_an_unresponsive_or_ended_topology_is_reported_as_such(fake: FakeOperator) -> None:
    silent = fake.document("words")
    silent["live"] = False
    assert "it does not answer: these numbers are from its checkpoint" in stats_lines(silent, "600", NOW_MS, 80)
    ended = stats_lines(fake.document("nightly"), "600", NOW_MS, 80)
    assert ended[0].startswith("nightly: ended, 9 h 0 min ago; ")
    assert "ended: its spouts are exhausted, and every tree is finished" in ended


def test_output_that_is_not_a_terminal_has_all_columns_and_digits_and_one_line_for_a_row(
    printed: Printed, fake: FakeOperator
) -> None:
    assert os.environ["COLUMNS"] == "80"
    why = "its database is away: " + "the connection was refused, " * 9
    fake.known[0]["verdict"] = {"level": "bad", "text": why}
    name = fake.known[0]["name"] = "a-topology-with-a-very-long-name-of-many-words"
    listed, numbers = printed("list").splitlines(), printed("stats", fake.known[0]["id"]).splitlines()
    assert listed[0].split() == ["name", "state", "since", "batches", "trees/s", "lag", "open", "errors"]
    assert listed[1].split()[0] == name
    dead = "    dead: its process (815) is gone and has not reported how it ended. "
    assert f"{dead}Start it again with its checkpoint to continue" in listed
    assert f"    {why.strip()}" in listed
    assert any(line.split()[:3] == ["enrich", "3,600,000", "3,593,000"] for line in numbers), numbers


def test_displayed_text_cannot_control_a_terminal(printed: Printed, fake: FakeOperator) -> None:
    fake.known[1]["verdict"]["text"] = "\x1b[2Jgone\r"
    assert "\\x1b[2Jgone\\r" in printed("list")
    known = document(fake.known[0])
    known["errors"][-1]["text"] = "\x1b]0;title\x07"
    fake.documents[fake.known[0]["id"]] = known
    assert "\x1b" not in printed("stats", "words")


# again and again


def until(times: int) -> Callable[[float], None]:
    """A sleep that is broken off by Ctrl-C after some times."""
    left = [times]

    def sleep(secs: float) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise KeyboardInterrupt

    return sleep


def test_watch_rewrites_its_output_repeatedly_and_shows_an_error_instead(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers: list[Any] = [["second"], SparkboltError("the disk is gone"), ["fourth"]]

    def look() -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert watching.again_and_again(["first"], look, None, sleep=until(4)) == 0
    assert capsys.readouterr().out == "first\nsecond\nthe disk is gone\nfourth\n"


def test_top_writes_a_line_for_each_topology_without_a_terminal(
    printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", until(1))
    monkeypatch.setattr(watching.again_and_again, "__kwdefaults__", {"headed": False, "sleep": until(2)})
    assert printed("top").splitlines()[:2] == [
        "2026-01-01 12:20:00.000Z  words-1-1767262800  active  1,204 trees/s  lag 1,234,567 messages  open 7,666  "
        "acked 12,220,003  failed attempts 118,009  errors 118,021  retries 420",
        "2026-01-01 12:20:00.000Z  orders-1-1767176400  dead  0 trees/s  lag unknown  open 6  acked 4,090  "
        "failed attempts 0  errors 0  retries 0",
    ]
