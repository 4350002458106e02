"""Lookup: what is asked for, how often, together with what, and what a failure of the source means."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import AsyncBolt, Config, TopologyBuilder
from sparkbolt.bolts import Lookup
from sparkbolt.connectors.lookup.lookup_sources import RefusedLookupError
from sparkbolt.errors import Unavailable
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver

USERS = {1: "ann", 2: "bo", 3: "cy"}


class Asked:
    """A source that notes what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []

    def __call__(self, keys: list[Any]) -> dict[Any, Any]:
        self.calls.append(keys)
        return {key: USERS[key] for key in keys if key in USERS}


def test_a_found_answer_and_a_missing_answer_are_cached_for_their_own_times() -> None:
    now, source = [0.0], Asked()
    lookup = Lookup(source, ttl_secs=60, missing_ttl_secs=5, clock=lambda: now[0])
    assert lookup.many([1, 9]) == {1: "ann"}
    now[0] = 4.9
    assert lookup.many([1, 9]) == {1: "ann"}
    now[0] = 5
    assert lookup.many([1, 9]) == {1: "ann"}
    now[0] = 60
    assert lookup.many([1]) == {1: "ann"}
    assert source.calls == [[1, 9], [9], [1]]


def test_an_answer_that_a_bolt_changes_is_unchanged_for_the_next_tuple() -> None:
    lookup = Lookup(lambda keys: {key: {"name": USERS[key], "towns": [{"at": "Ulm"}]} for key in keys})

    async def ask() -> dict[str, Any]:
        answer: dict[str, Any] = await lookup.get(1)
        return answer

    for changed in (asyncio.run(ask()), asyncio.run(ask()), lookup.many([1])[1], lookup.many([1])[1]):
        assert changed == {"name": "ann", "towns": [{"at": "Ulm"}]}
        changed["amount"] = 7
        changed["towns"][0]["at"] = "Bonn"
        changed["towns"].append("Jena")
    lookup.close()


def test_least_recently_used_answer_is_removed_first() -> None:
    source = Asked()
    lookup = Lookup(source, size=2)
    for key in (1, 2, 1, 3, 1, 2):
        lookup.many([key])
    assert source.calls == [[1], [2], [3], [2]]


def test_many_keys_are_fetched_in_batches() -> None:
    source = Asked()
    assert Lookup(source, batch=2).many([3, 1, 3, 2, 7]) == {3: "cy", 1: "ann", 2: "bo"}
    assert source.calls == [[3, 1], [2, 7]]


def test_coroutines_that_ask_at_the_same_time_get_one_batched_answer() -> None:
    source = Asked()
    lookup = Lookup(source)

    async def ask() -> list[Any]:
        cancelled = asyncio.ensure_future(lookup.get(1))
        asyncio.get_running_loop().call_soon(cancelled.cancel)
        found = await asyncio.gather(*(lookup.get(key, "?") for key in (1, 2, 1, 8)))
        return [*found, await lookup.get(2)]

    assert asyncio.run(ask()) == ["ann", "bo", "ann", "?", "bo"]
    assert source.calls == [[1, 2, 8]]
    lookup.close()


class Raising(Asked):
    """A source that raises for a call with a bad key."""

    def __init__(self, *bad: int) -> None:
        super().__init__()
        self.bad = set(bad)

    def __call__(self, keys: list[Any]) -> dict[Any, Any]:
        self.calls.append(keys)
        if self.bad.intersection(keys):
            raise ValueError(f"bad key in {len(keys)}")
        return {key: -key for key in keys}


def answers_of(lookup: Lookup, keys: range) -> dict[int, Any]:
    async def ask() -> list[Any]:
        return await asyncio.gather(*(lookup.get(key) for key in keys), return_exceptions=True)

    return dict(zip(keys, asyncio.run(ask()), strict=True))


@pytest.mark.parametrize("bad", [(), (0,), (99,), (0, 1, 2), (17, 50, 51, 98)])
def test_only_the_keys_for_which_a_function_raises_fail(bad: tuple[int, ...]) -> None:
    source = Raising(*bad)
    answers = answers_of(Lookup(source), range(100))
    assert {key for key, value in answers.items() if isinstance(value, ValueError)} == set(bad)
    assert all(value == -key for key, value in answers.items() if key not in bad)
    assert {str(answers[key]) for key in bad} <= {"bad key in 1"}
    assert len(source.calls) <= 1 + 15 * len(bad)
    lookup = Lookup(Raising(3))
    with pytest.raises(ValueError, match="bad key in 1"):
        lookup.many([1, 3, 4])
    assert lookup.many([1, 4]) == {1: -1, 4: -4}


def test_a_function_that_raises_for_every_key_is_not_called_for_each() -> None:
    source = Raising(*range(400))
    assert all(isinstance(value, ValueError) for value in answers_of(Lookup(source), range(400)).values())
    assert len(source.calls) < 25


def test_a_source_that_goes_away_while_keys_at_fault_are_searched_is_away_for_all() -> None:
    def fetch(keys: list[Any]) -> dict[Any, Any]:
        if len(keys) < 4:
            raise Unavailable("away")
        raise ValueError("bad")

    answers = answers_of(Lookup(fetch), range(8))
    assert [type(value) for value in answers.values()] == [Unavailable] * 8


def test_an_error_is_raised_for_all_waiters_and_is_not_cached() -> None:
    errors: list[Exception] = [ConnectionError("no")]

    def fetch(keys: list[Any]) -> dict[Any, Any]:
        if errors:
            raise errors.pop()
        return {1: "ann", 2: ValueError("no")}

    lookup = Lookup(fetch)

    async def ask(*keys: int) -> list[Any]:
        return await asyncio.gather(*(lookup.get(key) for key in keys), return_exceptions=True)

    assert [str(error) for error in asyncio.run(ask(1, 1))] == ["no", "no"]
    answers = asyncio.run(ask(1, 2))
    assert (answers[0], str(answers[1])) == ("ann", "no"), "an exception is the answer of its key alone"
    lookup.close()


def test_an_unavailable_source_is_not_asked_again_for_a_second() -> None:
    now, calls = [0.0], []

    def fetch(keys: list[Any]) -> dict[Any, Any]:
        calls.append(keys)
        raise Unavailable("away")

    lookup = Lookup(fetch, clock=lambda: now[0])
    for key, at in ((1, 0.0), (2, 0.9), (3, 1.0)):
        now[0] = at
        with pytest.raises(Unavailable, match="away"):
            lookup.many([key])
    assert calls == [[1], [3]]


def test_the_url_of_a_sqlite_database_says_how_long_a_lock_is_waited_for(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "users.db", isolation_level=None) as connection:
        connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable, match="database is locked"):
            Lookup.sql(f"sqlite:///{tmp_path}/users.db?timeout=0.01", "users", "id").many([1, 2])
    connection.close()


@pytest.fixture
def users(tmp_path: Path) -> str:
    with sqlite3.connect(tmp_path / "users.db") as connection:
        connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, town TEXT)")
        connection.executemany("INSERT INTO users VALUES (?, ?, 'Ulm')", USERS.items())
    connection.close()
    return f"sqlite:///{tmp_path}/users.db"


def test_rows_of_a_table_are_dicts_or_the_values_of_one_column(users: str) -> None:
    assert Lookup.sql(users, "users", "id").many([1, 9]) == {1: {"id": 1, "name": "ann", "town": "Ulm"}}
    assert Lookup.sql(users, "users", "id", ["town", "name"]).many([2]) == {2: {"town": "Ulm", "name": "bo"}}
    assert Lookup.sql(users, "users", "id", "name").many([1, 2, 9]) == {1: "ann", 2: "bo"}


def test_a_key_that_the_database_does_not_take_fails_alone(users: str) -> None:
    lookup = Lookup.sql(users, "users", "id", "name")
    with pytest.raises(RefusedLookupError, match="OverflowError"):
        lookup.many([1, 1 << 70])
    assert lookup.many([1]) == {1: "ann"}
    assert lookup.asked == 2


def test_an_unreachable_database_raises_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="unable to open database file"):
        Lookup.sql(f"sqlite:///{tmp_path}/none/x.db", "users", "id").many([1])
    with pytest.raises(Unavailable, match="no such table"):
        Lookup.sql(f"sqlite:///{tmp_path}/x.db", "users", "id").many([1])


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: list[str] = []

    def do_GET(self) -> None:
        Service.seen.append(self.path)
        key = self.path.rsplit("/", 1)[1]
        status = int(key) if key.isdigit() and int(key) >= 100 else 200 if key != "9" else 404
        body = b"no json" if key == "odd" else json.dumps({"key": key, "by": self.headers["By"]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def service() -> Iterator[str]:
    Service.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_a_web_service_is_asked_once_for_each_key(service: str) -> None:
    lookup = Lookup.http(f"{service}/users/{{key}}", headers={"By": "me"}, connections=3)
    try:
        assert lookup.many(["a b/c", 1, 9]) == {"a b/c": {"key": "a%20b%2Fc", "by": "me"}, 1: {"key": "1", "by": "me"}}
        assert lookup.many([1, 9]) == {1: {"key": "1", "by": "me"}}
        assert sorted(Service.seen) == ["/users/1", "/users/9", "/users/a%20b%2Fc"]
        for key, error, text in [
            (503, Unavailable, "answers 503 Service Unavailable"),
            (429, Unavailable, "429"),
            (500, RefusedLookupError, "key 500: 500 Internal Server Error"),
            ("odd", RefusedLookupError, "the answer cannot be decoded: JSONDecodeError"),
        ]:
            with pytest.raises(error, match=text):
                lookup.many([key])
    finally:
        lookup.close()


def test_an_unreachable_web_service_raises_unavailable_without_showing_its_secrets() -> None:
    lookup = Lookup.http("http://ann:secret@127.0.0.1:9/{key}?token=secret", timeout_secs=2)
    with pytest.raises(Unavailable, match=r"http://127.0.0.1:9 does not answer: NewConnectionError") as caught:
        lookup.many([1])
    assert "secret" not in str(caught.value)
    lookup.close()


class Enrich(AsyncBolt):
    outputs = ["user", "name"]
    stateless = True

    def __init__(self, users: Lookup) -> None:
        self.users = users

    async def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["user"], await self.users.get(tup["user"], "nobody")])

    def cleanup(self) -> None:
        self.users.close()


def test_a_bolt_enriches_its_tuples_and_waits_for_an_unavailable_database(users: str, tmp_path: Path) -> None:
    builder = TopologyBuilder("enrich", Config(max_attempts=1))
    builder.set_spout("in", GeneratorSpout(list, outputs=["user"], count=0))
    builder.set_bolt("enrich", Enrich(Lookup.sql(users, "users", "id", "name"))).shuffle_grouping("in")
    place = Path(users.removeprefix("sqlite:///"))
    with TopologyTestDriver(builder.build()) as driver:
        for number in range(1000):
            driver.feed("in", [1 + number % 4], message_id=number)
        driver.run_until_idle()
        assert len(driver.acked("in")) == 1000
        assert sorted(set(map(tuple, driver.emitted("enrich")))) == [(1, "ann"), (2, "bo"), (3, "cy"), (4, "nobody")]
        place.rename(tmp_path / "away")
        driver.feed("in", [5], message_id="waits")
        driver.run_until_idle()
        assert "waits" not in driver.acked("in")
        assert driver.failed("in") == [], "it costs no attempt"
