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
from tests.unit.control.fake import FakeOperator
from tests.unit.control.shop import HOME, NOW_MS, ORDERS, document, entry, metrics

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
        "name    state     since           batches  trees/s              lag   open  errors\n"
        "orders  active    2 h 20 min        8,112    1,184  48,230 messages  5,480  31,411\n"
        "    pid 4711 on shop-1, Spark http://shop-1:4040\n"
        "    checkpoint /data/checkpoints/orders\n"
        "    23 messages given up: see `sparkbolt dlq list orders`\n"
        "clicks  inactive  25 h 0 min       90,210        0       0 messages      0       0\n"
        "    pid 4802 on shop-1, Spark http://shop-1:4040\n"
        "    checkpoint /data/checkpoints/clicks\n"
        "    inactive\n"
        "stock   dead      47 min 0 s ago    1,204        0                      60       0\n"
        "    shop-1, 2026-01-01 04:00Z\n"
        "    checkpoint /data/checkpoints/stock\n"
        "    dead: its process (815 on shop-1) is gone and has not reported how it ended. "
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
        "    shop-1, 2026-01-01 00:00Z, exit code 0, no checkpoint\n"
        "    ended: its spouts are exhausted, and every tree is finished\n"
    )


def test_two_topologies_of_one_name_are_listed_by_their_ids(printed: Printed, fake: FakeOperator) -> None:
    fake.known.append(entry("orders", TopologyState.ACTIVE, 2))
    out = printed("list")
    for id_ in (ORDERS, "orders-2-1767262800"):
        place = f"    id {id_}, pid 4711 on shop-1, Spark http://shop-1:4040\n    checkpoint /data/checkpoints/orders\n"
        assert place in out


def test_list_names_the_searched_home_and_the_ended_topologies_if_nothing_runs(
    printed: Printed, fake: FakeOperator
) -> None:
    fake.known = fake.known[-1:]
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
    out = "\n".join([*stats_lines(fake.document("orders"), "600", NOW_MS, 80), ""])
    assert out.startswith("orders: active for 2 h 20 min; last 10 min, 10 min 0 s of it measured")
    assert "spout    emitted  acked  given up  failed attempts               lag  p99 ms\n" in out
    assert "orders      710k   710k         2              540  47,012 positions   9,870\n" in out
    assert "enrich        710k     710k     540     540  0.96 !          6.40        6.60\n" in out
    assert "time of micro-batches: level 1 61%, read 16%" in out
    assert "  41 s ago, enrich[3] (31,380 times): KeyError: 'sku'\n" in out


def test_stats_show_how_far_a_watermark_is_behind(printed: Printed, fake: FakeOperator) -> None:
    document = fake.document("orders")
    marks = {"watermark_ms": NOW_MS - 28_177_970_799, "behind_ms": 28_177_970_799, "windows": 1, "late_tuples": 0}
    document["now"]["watermarks"] = {"revenue": marks}
    fake.documents[document["entry"]["id"]] = document
    assert "revenue: watermark 2025-02-09 09:07:09.201Z, 326 d 3 h behind\n" in printed("stats", "orders")


def test_stats_give_a_remedy_for_late_tuples_only_if_no_bolt_takes_them(printed: Printed, fake: FakeOperator) -> None:
    document = fake.document("orders")
    document["now"]["watermarks"] = {"revenue": {"windows": 1, "late_tuples": 3}}
    [revenue] = [one for one in document["components"] if one["id"] == "revenue"]
    fake.documents[document["entry"]["id"]] = document
    assert "revenue: 3 late tuples were older than the watermark and in no window: raise" in printed("stats", "orders")
    revenue["streams"] = {**revenue["streams"], "late": ["late_tuple"]}
    document["components"][-1]["inputs"] = [
        {"component": "revenue", "stream": "late", "grouping": "SHUFFLE", "fields": []}
    ]
    out = printed("stats", "orders")
    assert "went to stream 'late'\n" in out
    assert "with_lag" not in out


def test_stats_of_a_component_shows_its_tasks_and_streams(printed: Printed) -> None:
    out = printed("stats", "orders", "enrich", "--window", "all")
    assert "bolt enrich, shop.orders.Enrich, 8 tasks, reads validate by shuffle\n" in out
    assert "execute latency in ms: p50 4.80, p99 31.0, p999 88.0, max 912\n" in out
    assert "\nenrich[1] " in out
    assert "since its first start" in out
    assert "orders[2]: offsets" not in out
    assert "orders-1  14,118 positions\n" in printed("stats", "orders", "orders")


def test_stats_show_the_lag_of_files_in_bytes_and_seconds(printed: Printed, fake: FakeOperator) -> None:
    old, new = "/logs/a.log#17-5-4fd786f4855f5fa2", "/logs/b.log#18-5-4fd786f4855f5fa2"
    document = fake.document("orders")
    document["components"][0]["position_unit"] = "bytes"
    document["now"].update(lag={"orders": {old: 5_400_000, new: 20_480}}, lag_secs={"orders": {old: 95.2, new: 2.0}})
    fake.documents[document["entry"]["id"]] = document
    assert " 5.2 MB, 1 min 35 s " in printed("stats", "orders")
    one = printed("stats", "orders", "orders")
    assert "a.log   5.1 MB, 1 min 35 s\n" in one
    assert "b.log           20 KB, 2 s\n" in one
    assert json.loads(printed("stats", "orders", "orders", "--json"))["lag_secs"] == {old: 95.2, new: 2.0}
    assert printed("lag", "orders").startswith("orders  lag 5.2 MB, 1 min 35 s\nsource ")
    assert json.loads(printed("lag", "orders", "--json"))["sources"][0] == {
        "source": old,
        "lag": 5_400_000,
        "secs": 95.2,
    }


def test_stats_show_the_metrics_that_components_declare(printed: Printed, fake: FakeOperator) -> None:
    document = fake.document("orders")
    document["metrics"] = metrics()
    fake.documents[document["entry"]["id"]] = document
    shown = [line.split() for line in printed("stats", "orders", "enrich").splitlines()]
    start = shown.index(["metric", "since", "the", "first", "start", "labels", "value"])
    assert shown[start + 1 : start + 6] == [
        ["cache_entries", "task=0", "5,120"],
        ["lookup", *["4", "values,", "mean", "64.62", "ms,", "p50", "5.5", "ms,", "p99", ">", "100", "ms"]],
        ["requests", "status=200", "165,000,000"],
        ["requests", "status=503", "126,000"],
        ["timeouts", "0"],
    ]
    assert "enrich requests" in printed("stats", "orders")
    assert json.loads(printed("stats", "orders", "enrich", "--json"))["metrics"] == metrics()["enrich"]
    assert json.loads(printed("stats", "orders", "--json"))["metrics"] == metrics()


def test_lag_of_a_topology_whose_spouts_report_none_says_so(printed: Printed, fake: FakeOperator) -> None:
    found = fake.document("orders")
    found["now"]["lag"] = {}
    fake.documents[found["entry"]["id"]] = found
    assert "no spout of topology 'orders' has reported a lag" in printed("lag", "orders", code=2)


def test_stats_as_json_has_the_requested_window(printed: Printed, fake: FakeOperator) -> None:
    known = fake.document("orders")
    assert json.loads(printed("stats", "orders", "--json", "--window", "all"))["window"] == json.loads(
        json.dumps(known["windows"][ALL_TIME])
    )
    one = json.loads(printed("stats", "orders", "orders", "--json"))
    assert one["numbers"] == known["windows"]["600"]["components"]["orders"]
    assert {task["component"] for task in one["tasks"]} == {"orders"}
    assert one["lag"] == known["now"]["lag"]["orders"]


@pytest.mark.parametrize(
    "arguments", [["stats", "odrers"], ["stats", "orders", "enrihc"], ["stats", "orders", "nothing"]]
)
def test_a_wrong_name_is_a_usage_error_and_is_reported_with_the_nearest_name(
    printed: Printed, arguments: list[str]
) -> None:
    said = printed(*arguments, code=2)
    assert (
        said
        == {
            "odrers": f"sparkbolt: no topology 'odrers' is registered in {HOME}: did you mean 'orders'?\n",
            "enrihc": "sparkbolt: topology 'orders' has no component 'enrihc': did you mean 'enrich'?\n",
            "nothing": "sparkbolt: topology 'orders' has no component 'nothing': there is orders, "
            "refunds, validate, enrich, revenue, alerts, __acker\n",
        }[arguments[-1]]
    )


def test_an_unresponsive_or_ended_topology_is_reported_as_such(fake: FakeOperator) -> None:
    silent = fake.document("orders")
    silent["live"] = False
    assert "it does not answer: these numbers are from its checkpoint" in stats_lines(silent, "600", NOW_MS, 80)
    ended = stats_lines(fake.document("nightly"), "600", NOW_MS, 80)
    assert ended[0].startswith("nightly: ended, 11 h 52 min ago; ")
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
    dead = "    dead: its process (815 on shop-1) is gone and has not reported how it ended. "
    assert f"{dead}Start it again with its checkpoint to continue" in listed
    assert f"    {why.strip()}" in listed
    assert any(line.split()[:3] == ["enrich", "710,400", "709,860"] for line in numbers), numbers


def test_displayed_text_cannot_control_a_terminal(printed: Printed, fake: FakeOperator) -> None:
    fake.find("stock")["verdict"]["text"] = "\x1b[2Jgone\r"
    assert "\\x1b[2Jgone\\r" in printed("list")
    known = document(fake.known[0])
    known["errors"][-1]["text"] = "\x1b]0;title\x07"
    fake.documents[fake.known[0]["id"]] = known
    assert "\x1b" not in printed("stats", "orders")


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
        "2026-01-01 12:20:00.000Z  orders-7-1767261600  active  1,184 trees/s  lag 48,230 messages  open 5,480  "
        "acked 9,802,733  failed attempts 31,207  errors 31,411  retries 214",
        "2026-01-01 12:20:00.000Z  clicks-2-1767180000  inactive  0 trees/s  lag 0 messages  open 0  "
        "acked 120,331,870  failed attempts 0  errors 0  retries 0",
    ]
