"""The verdict on a topology: which problem is said first, and that all faces say the same."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbolt.api.progress import Progress
from sparkbolt.control.describe import now_of
from sparkbolt.control.documents import TopologyState
from sparkbolt.control.home import entry_with
from sparkbolt.control.operable import TopologyView
from sparkbolt.control.problems import problems_of, verdict_of
from sparkbolt.faces.cli.operate.overview import list_lines
from sparkbolt.faces.cli.operate.statistics import stats_lines
from tests.unit.control.shop import NOW_MS, document, entry, gist

OUT = "store waits for its database since 14:02 UTC (PostgreSQL refuses the connection), next probe in 3 s"
FULL = "orders waits: 64 trees are open, and max_spout_pending is reached"


@pytest.mark.parametrize(
    ("state", "why", "counts", "text"),
    [
        ("active", None, {}, "well"),
        ("active", None, {"given_up": 44}, "44 messages given up: see `sparkbolt dlq list shop`"),
        ("active", None, {"given_up": 1}, "1 message given up: see `sparkbolt dlq list shop`"),
        (
            "active",
            None,
            {"lag_growth": {"messages": 1_200, "bytes": 5_400_000}},
            "falls behind: its lag grew by 5.1 MB + 1,200 messages within a minute",
        ),
        (
            "active",
            None,
            {"lag_growth": {"bytes": 5_400_000}, "lag": 9, "lags": {"bytes": 9}},
            "falls behind: its lag grew by 5.1 MB within a minute",
        ),
        ("inactive", "deactivated by ann", {"lag_growth": {"bytes": 9}}, "inactive: deactivated by ann"),
        (
            "inactive",
            "deactivated by ann",
            {"given_up": 44},
            "44 messages given up: see `sparkbolt dlq list shop`; inactive: deactivated by ann",
        ),
        ("starting", "Spark has run no micro-batch", {}, "starting: Spark has run no micro-batch"),
        ("killed", "killed by ann", {"open_trees": 7}, "stopping: killed by ann; its 7 open trees finish"),
        ("draining", None, {}, "stopping"),
        ("restarting", "its query failed", {}, "restarting: its query failed"),
        ("failed", "a bolt raised", {"given_up": 2}, "failed: a bolt raised"),
        ("ended", None, {}, "ended"),
    ],
)
def test_a_state_and_its_numbers_give_one_sentence(state: str, why: str | None, counts: Any, text: str) -> None:
    assert verdict_of(entry_with(name="shop", state=state, why=why, gist=gist(**counts)))["text"] == text


def test_an_outage_comes_before_what_follows_from_it() -> None:
    shop = entry("shop", TopologyState.ACTIVE, gist=gist(given_up=3, lag_growth={"bytes": 10}))
    now = {
        **document(shop)["now"],
        "outages": [OUT],
        "full": [FULL],
        "repeats": 2,
        "micro_batch": {"micro_batch_id": 7},
    }
    assert [one["text"] for one in problems_of(shop, now)] == [  # type: ignore[arg-type]
        OUT,
        "repeats micro-batch 7",
        FULL,
        "falls behind: its lag grew by 10 B within a minute",
        "3 messages given up: see `sparkbolt dlq list shop`",
    ]


def test_a_state_that_somebody_requested_hides_no_outage() -> None:
    shop = entry("shop", TopologyState.INACTIVE, why="deactivated by ann")
    now = {**document(shop)["now"], "outages": [OUT]}
    assert verdict_of(shop, now) == {"level": "bad", "text": f"{OUT}; inactive: deactivated by ann"}  # type: ignore[arg-type]


def test_a_bolt_that_waits_for_its_database_within_a_micro_batch_is_not_well() -> None:
    wait = "store[0] waits for table orders at sqlite:////srv/shop.db for 12 s"
    shop = entry("shop", TopologyState.ACTIVE)
    now = now_of(TopologyView(TopologyState.ACTIVE, progress=Progress(7, 12.5, waits=(wait,))), NOW_MS)
    assert verdict_of(shop, now) == {"level": "bad", "text": wait}


def test_list_and_stats_say_the_verdict_of_the_document() -> None:
    shop = entry("words", TopologyState.ACTIVE)
    shop["verdict"] = {"level": "bad", "text": OUT}
    found = document(shop)
    found["entry"] = shop
    for lines in (list_lines([shop], NOW_MS, 200), stats_lines(found, ":all-time", NOW_MS, 200)):
        assert any(line.strip() == OUT for line in lines), lines
