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
from tests.unit.control.fake import NOW_MS, ROOT
from tests.unit.faces.ui.operators import SCRIPT, UiOperator

WORDS = "/api/v2/topologies/words"


def get(client: TestClient, path: str, **parameters: Any) -> Any:
    answer = client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_documents_are_served_unchanged(client: TestClient, operator: UiOperator) -> None:
    assert get(client, WORDS) == operator.document("words")
    assert get(client, f"{WORDS}/series") == operator.series("words")
    assert get(client, f"{WORDS}/micro-batches", last=3)[0]["parts"][0] == ["plan", 0.0, 30.0]
    assert get(client, f"{WORDS}/lag") == {"lines": {"lines-0": 1_000_000, "lines-1": 234_567}}
    assert get(client, f"{WORDS}/log", component="enrich")[0]["component"] == "enrich"
    assert get(client, f"{WORDS}/settings")["settings"]["message_timeout_secs"] == 30.0


def test_topologies_that_have_ended_are_listed_on_demand(client: TestClient) -> None:
    everything = [each["name"] for each in get(client, "/api/v2/topologies")]
    running = [each["name"] for each in get(client, "/api/v2/topologies", ended="false")]
    assert {"orders", "nightly"} <= set(everything)
    assert {"orders", "nightly"} & set(running) == set()


def test_stories_are_searched_by_state_and_text(client: TestClient) -> None:
    assert {each["state"] for each in get(client, f"{WORDS}/stories", state="open", search="")} == {"open"}
    assert get(client, f"{WORDS}/stories", search="KeyError")[0]["root"] == ROOT
    assert get(client, f"{WORDS}/stories", search="no such reason") == []
    assert get(client, f"{WORDS}/stories/{ROOT}")["other_attempts"] == []
    assert client.get(f"{WORDS}/stories/0000").status_code == 404


def test_state_is_served_with_sizes_a_page_of_entries_or_one_key(client: TestClient) -> None:
    assert [one["keys"] for one in get(client, f"{WORDS}/state")["tasks"]] == [2, 2]
    page = get(client, f"{WORDS}/state/count", first=3)
    assert (page["count"], [(one["task"], one["key"]) for one in page["entries"]]) == (4, [(0, 7), (0, "be"), (1, "7")])
    for key, value in (("7", [1]), ('"7"', "text"), ("be", 2), ('["be",7]', 3)):
        assert [one["value"] for one in get(client, f"{WORDS}/state/count", key=key)["entries"]] == [value]
    refusals: list[tuple[Any, int, str]] = [
        ({"key": "bee"}, 404, "did you mean 'be'?"),
        ({"first": 1001}, 400, "first must be a whole number"),
    ]
    for parameters, status, sentence in refusals:
        answer = client.get(f"{WORDS}/state/count", params=parameters)
        assert (answer.status_code, sentence in answer.json()["detail"]) == (status, True), answer.text
    assert "keeps no state" in client.get(f"{WORDS}/state/split").json()["detail"]


def test_state_that_cannot_be_read_is_refused_with_the_reason(client: TestClient, operator: UiOperator) -> None:
    operator.state = raising(StateError("nothing is committed"))  # type: ignore[method-assign]
    answer = client.get(f"{WORDS}/state")
    assert (answer.status_code, answer.json()["detail"]) == (409, "nothing is committed")


def raising(error: Exception) -> Any:
    def ask(*_: Any, **__: Any) -> Any:
        raise error

    return ask


def test_open_trees_are_listed_by_who_holds_them(client: TestClient) -> None:
    found = get(client, f"{WORDS}/open-trees")
    assert found["open_trees"] == 7_666
    assert [(each["holder"], each["trees"], each["tuples"]) for each in found["holders"]] == [
        ("count[0]", 2, 4),
        ("count[1]", 1, 2),
    ]
    assert found["holders"][0]["oldest_ms"] == NOW_MS - 9_000


def test_dead_letters_are_listed_and_shown(client: TestClient) -> None:
    letters = get(client, f"{WORDS}/letters", replayed="0")
    assert [each["replayed"] for each in letters] == [False, False]
    assert letters[0]["values"] == {"value": SCRIPT}
    assert get(client, f"{WORDS}/letters/{letters[0]['id']}") == letters[0]
    assert (
        client.get(f"{WORDS}/letters/none").json()["detail"]
        == "there is no dead letter 'none'; GET .../letters lists them"
    )


def test_windowed_bolts_report_their_watermarks(client: TestClient) -> None:
    [bolt] = get(client, f"{WORDS}/windows")
    assert bolt == {
        "component": "count",
        "watermark_ms": NOW_MS - 5000,
        "behind_ms": 5000,
        "windows": 4,
        "late_tuples": 9,
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
    answer = client.get(f"{WORDS}/{path}")
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
            {"executors": {"split": 7}},
            (
                "rebalance",
                {
                    "executors": {"split": 7},
                    "num_workers": None,
                    "wait_secs": None,
                    "spark_partitions": None,
                    "reset": False,
                },
            ),
        ),
        ("trace", {"message": "lines-0@7"}, ("trace", {"message": "lines-0@7", "component": None, "stop": False})),
        ("letters/replay", {"ids": ["a", "b"]}, ("replay", {**ALL_LETTERS, "ids": ["a", "b"]})),
        ("letters/replay", {"kind": "3f2a9c1b"}, ("replay", {**ALL_LETTERS, "kind": "3f2a9c1b"})),
        (
            "letters/replay",
            {"ids": ["a"], "values": {"word": SCRIPT}, "target": "/again.jsonl"},
            ("replay", {**ALL_LETTERS, "ids": ["a"], "values": {"word": SCRIPT}, "target": "/again.jsonl"}),
        ),
        ("letters/discard", {"ids": ["a"]}, ("discard", {"ids": ["a"], "kind": None})),
    ],
)
def test_changes_reach_the_operator_with_their_arguments(
    writer: TestClient, operator: UiOperator, path: str, body: Any, asked: tuple[Any, ...]
) -> None:
    answer = writer.post(f"{WORDS}/{path}", json=body) if body is not None else writer.post(f"{WORDS}/{path}")
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
    writer: TestClient, operator: UiOperator, answer: Answer, status: int
) -> None:
    operator.answers["restart"] = answer
    found = writer.post(f"{WORDS}/restart")
    assert (found.status_code, found.json()) == (status, answer)


def test_types_of_stories_equal_the_stored_types() -> None:
    story = Story(7, "lines", 0, TreeState.OPEN, hops=(Hop(7, 1, 2, 1, "split", 0),)).to_json()
    assert set(story) == set(required_fields(StoryDocument))
    assert set(story["hops"][0]) == set(required_fields(HopDocument))
