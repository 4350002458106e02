"""``sparkbolt peek``: some tuples of a running topology."""

from __future__ import annotations

import json

import pytest

from sparkbolt.control.documents import PeekedDocument, TopologyState
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.operate import peeking
from tests.unit.control.fake import FakeOperator
from tests.unit.control.shop import peeked


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeOperator:
    found = FakeOperator()
    monkeypatch.setattr(peeking, "operator_of", lambda home: found)
    return found


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_peek_shows_so_many_tuples_and_ends(fake: FakeOperator, capsys: pytest.CaptureFixture[str]) -> None:
    fake.peeked = [peeked(number) for number in (1, 2, 3)]
    assert printed(capsys, "peek", "orders", "enrich", "--count", "2") == (
        "12:19:58.200Z enrich[2]  {'sku': 's-1'}\n12:19:58.200Z enrich[2]  {'sku': 's-2'}\n"
    )
    lines = printed(capsys, "peek", "orders", "enrich.rejected", "--match", "s-3", "-n", "1", "--json").splitlines()
    assert json.loads(lines[0])["values"] == "{'sku': 's-1'}"
    assert fake.live_asked[-1] == (
        "peek",
        {"component": "enrich", "stream": "rejected", "match": "s-3", "after": 0, "last": 100},
    )


def test_peek_waits_for_more_tuples_and_shows_none_twice(
    fake: FakeOperator, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.peeked = [peeked(1)]

    def sleep(_: float) -> None:
        fake.peeked = [*fake.peeked, peeked(len(fake.peeked) + 1)]

    peeking.watch(fake, "orders", "enrich", 3, "", None, values, sleep=sleep)  # type: ignore[arg-type]
    assert capsys.readouterr().out == "{'sku': 's-1'}\n{'sku': 's-2'}\n{'sku': 's-3'}\n"
    assert fake.live_asked[-1][1]["after"] == 2


def values(one: PeekedDocument) -> str:
    return one["values"]


def test_peek_ends_when_its_time_has_expired(fake: FakeOperator, capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.0, 2.0, 6.0])
    peeking.watch(fake, "orders", "enrich", 3, "", 5.0, values, clock=lambda: next(times), sleep=lambda _: None)  # type: ignore[arg-type]
    assert capsys.readouterr().out == ""
    assert len(fake.live_asked) == 2


def test_peek_ends_with_the_topology(fake: FakeOperator) -> None:
    def sleep(_: float) -> None:
        fake.known[0]["state"] = TopologyState.ENDED
        fake.live_error = WrongUseError("it does not run")

    peeking.watch(fake, "orders", "enrich", 3, "", None, values, sleep=sleep)  # type: ignore[arg-type]


def test_an_unknown_component_is_refused(fake: FakeOperator, capsys: pytest.CaptureFixture[str]) -> None:
    fake.live_error = WrongUseError("there is no component 'enrichh': did you mean 'enrich'?")
    assert main(["peek", "orders", "enrichh"]) == 2
    assert "did you mean 'enrich'" in capsys.readouterr().err
