"""Our own interface answers with the documents as they are, and tells what has become of a change."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from sparkbolt.api.story import Hop, Story
from sparkbolt.api.tree_life import TreeState
from sparkbolt.base.codec import required_fields
from sparkbolt.control.documents import Answer, HopDocument, StoryDocument
from sparkbolt.errors import StateError
from tests.unit.control.fake import FakeOperator
from tests.unit.control.shop import NASTY, NOW_MS, root

ORDERS = "/api/v2/topologies/orders"


def get(client: TestClient, path: str, **parameters: Any) -> Any:
    answer = client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_documents_are_served_unchanged(client: TestClient, operator: FakeOperator) -> None:
    assert get(client, ORDERS) == operator.document("orders")
    assert get(client, f"{ORDERS}/series") == operator.series("orders")
    assert get(client, f"{ORDERS}/micro-batches", last=3)[0]["parts"][0] == ["plan", 0.0, 9.0]
    assert get(client, f"{ORDERS}/lag")["refunds"] == {"refunds-0": 1_204, "refunds-1": 14}
    assert get(client, f"{ORDERS}/log", component="enrich")[0]["component"] == "enrich"
    assert get(client, f"{ORDERS}/settings")["settings"]["message_timeout_secs"] == 30


def test_topologies_that_have_ended_are_listed_on_demand(client: TestClient) -> None:
    everything = [each["name"] for each in get(client, "/api/v2/topologies")]
    running = [each["name"] for each in get(client, "/api/v2/topologies", ended="false")]
    assert {"stock", "nightly"} <= set(everything)
    assert {"stock", "nightly"} & set(running) == set()


def test_stories_are_searched_by_state_and_text(client: TestClient) -> None:
    assert {each["state"] for each in get(client, f"{ORDERS}/stories", state="open", search="")} == {"open"}
    assert get(client, f"{ORDERS}/stories", search="KeyError")[-1]["root"] == root(0)
    assert get(client, f"{ORDERS}/stories", search="no such reason") == []
    assert get(client, f"{ORDERS}/stories/{root(4)}")["other_attempts"][0]["attempt"] == 1
    assert client.get(f"{ORDERS}/stories/0000").status_code == 404


def test_state_is_served_with_sizes_a_page_of_entries_or_one_key(client: TestClient) -> None:
    assert [one["keys"] for one in get(client, f"{ORDERS}/state")["tasks"]] == [4, 3]
    page = get(client, f"{ORDERS}/state/revenue", first=3)
    assert (page["count"], [(one["task"], one["key"]) for one in page["entries"]]) == (
        7,
        [(0, 7), (0, "12:19"), (0, NASTY)],
    )
    for key, value in (("7", [1]), ('"7"', "text"), ("be", 2), ('["be",7]', 3)):
        assert [one["value"] for one in get(client, f"{ORDERS}/state/revenue", key=key)["entries"]] == [value]
    refusals: list[tuple[Any, int, str]] = [
        ({"key": "bee"}, 404, "did you mean 'be'?"),
        ({"first": 1001}, 400, "first must be a whole number"),
    ]
    for parameters, status, sentence in refusals:
        answer = client.get(f"{ORDERS}/state/revenue", params=parameters)
        assert (answer.status_code, sentence in answer.json()["detail"]) == (status, True), answer.text
    assert "keeps no state" in client.get(f"{ORDERS}/state/enrich").json()["detail"]


def test_state_that_cannot_be_read_is_refused_with_the_reason(client: TestClient, operator: FakeOperator) -> None:
    operator.state = raising(StateError("nothing is committed"))  # type: ignore[method-assign]
    answer = client.get(f"{ORDERS}/state")
    assert (answer.status_code, answer.json()["detail"]) == (409, "nothing is committed")


def raising(error: Exception) -> Any:
    def ask(*_: Any, **__: Any) -> Any:
        raise error

    return ask


def test_open_trees_are_listed_by_who_holds_them(client: TestClient) -> None:
    found = get(client, f"{ORDERS}/open-trees")
    assert found["open_trees"] == 5_480
    assert [(each["holder"], each["trees"], each["tuples"]) for each in found["holders"]] == [
        ("revenue[1]", 80, 80),
        ("revenue[0]", 40, 40),
    ]
    assert found["holders"][0]["oldest_ms"] == NOW_MS - 9_000 - 119 * 1_700


def test_dead_letters_are_listed_and_shown(client: TestClient) -> None:
    letters = get(client, f"{ORDERS}/letters", replayed="0")
    assert [each["replayed"] for each in letters] == [False] * 21
    assert letters[1]["tuples"] == [[NASTY, None, 1]]
    assert get(client, f"{ORDERS}/letters/{letters[0]['id']}") == letters[0]
    assert (
        client.get(f"{ORDERS}/letters/none").json()["detail"]
        == "there is no dead letter 'none'; GET .../letters lists them"
    )


def test_windowed_bolts_report_their_watermarks(client: TestClient) -> None:
    [bolt] = get(client, f"{ORDERS}/windows")
    assert bolt == {
        "component": "revenue",
        "watermark_ms": NOW_MS - 9_000,
        "behind_ms": 9_000,
        "windows": 8_421,
        "late_tuples": 37,
    }


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("stories?state=lost", "failed, open, acked"),
        ("stories?last=0", "from 1 to 10000"),
        ("log?last=10001", "from 1 to 10000"),
        ("series?since_ms=-5", "of at least 0"),
        ("letters?replayed=perhaps", "must be true or false"),
        (f"log?search={'x' * 1001}", "to 1000 characters"),
    ],
)
def test_an_invalid_parameter_is_reported_with_the_allowed_values(client: TestClient, path: str, what: str) -> None:
    answer = client.get(f"{ORDERS}/{path}")
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert what in answer.json()["detail"]


ALL_LETTERS = {
    **dict.fromkeys(("ids", "values", "target", "kind", "search", "cause", "component", "spout")),
    "every": False,
    "again": False,
}


@pytest.mark.parametrize(
    ("path", "body", "asked"),
    [
        ("activate", None, ("activate", {})),
        ("deactivate", {}, ("deactivate", {})),
        ("kill", None, ("kill", {"wait_secs": None})),
        ("kill", {"wait_secs": 2.5}, ("kill", {"wait_secs": 2.5})),
        ("restart", None, ("restart", {})),
        (
            "settings",
            {"key": "log-level", "value": "debug"},
            ("set", {"key": "log-level", "value": "debug", "component": None}),
        ),
        (
            "rebalance",
            {"executors": {"validate": 7}},
            (
                "rebalance",
                {
                    "executors": {"validate": 7},
                    "num_workers": None,
                    "wait_secs": None,
                    "spark_partitions": None,
                    "reset": False,
                },
            ),
        ),
        ("trace", {"message": "orders-0@7"}, ("trace", {"message": "orders-0@7", "component": None, "stop": False})),
        ("letters/replay", {"ids": ["a", "b"]}, ("replay", {**ALL_LETTERS, "ids": ["a", "b"]})),
        ("letters/replay", {"kind": "3f2a9c1b"}, ("replay", {**ALL_LETTERS, "kind": "3f2a9c1b"})),
        (
            "letters/replay",
            {"ids": ["a"], "values": {"word": NASTY}, "target": "/again.jsonl"},
            ("replay", {**ALL_LETTERS, "ids": ["a"], "values": {"word": NASTY}, "target": "/again.jsonl"}),
        ),
        ("letters/discard", {"ids": ["a"]}, ("discard", {"ids": ["a"], "kind": None})),
    ],
)
def test_changes_reach_the_operator_with_their_arguments(
    writer: TestClient, operator: FakeOperator, path: str, body: Any, asked: tuple[Any, ...]
) -> None:
    answer = writer.post(f"{ORDERS}/{path}", json=body) if body is not None else writer.post(f"{ORDERS}/{path}")
    assert answer.status_code == 200, answer.text
    [(what, topology, *more)] = operator.asked
    assert (what, *more[:-1]) == asked
    assert topology == operator.known[0]["id"]
    assert more[-1] == "rest from testclient"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Answer(done=True, refused=False, text="it is so"), 200),
        (Answer(done=False, refused=False, text="when its open trees have finished"), 202),
        (Answer(done=False, refused=True, text="it does not run"), 409),
    ],
)
def test_status_code_shows_the_outcome_of_a_change(
    writer: TestClient, operator: FakeOperator, answer: Answer, status: int
) -> None:
    operator.answers["restart"] = answer
    found = writer.post(f"{ORDERS}/restart")
    assert (found.status_code, found.json()) == (status, answer)


def test_types_of_stories_equal_the_stored_types() -> None:
    story = Story(7, "orders", 0, TreeState.OPEN, hops=(Hop(7, 1, 2, 1, "validate", 0),)).to_json()
    assert set(story) == set(required_fields(StoryDocument))
    assert set(story["hops"][0]) == set(required_fields(HopDocument))
