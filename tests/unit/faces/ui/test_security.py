"""Whoever is not meant to read or change something does not, and what they chose is never a part of a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sparkbolt.errors import ConfigError
from sparkbolt.faces.ui import make_app
from sparkbolt.faces.ui import security as module
from sparkbolt.faces.ui.security import ANSWER_HEADERS, BODY_BYTES_MAX, SESSION_SECS, Sessions
from tests.unit.control.fake import NOW_SECS, TOKEN, FakeOperator
from tests.unit.control.shop import HOSTILE, NASTY

HOST = "localhost:8088"
ORIGIN = f"http://{HOST}"
ACTIVATE = "/api/v2/topologies/orders/activate"
CHANGES = [
    "/api/v1/topology/orders/activate",
    "/api/v1/topology/orders/deactivate",
    "/api/v1/topology/orders/kill/0",
    "/api/v1/topology/orders/rebalance/0",
    *(f"/api/v2/topologies/orders/{what}" for what in ("activate", "deactivate", "kill", "restart", "settings")),
    *(f"/api/v2/topologies/orders/{what}" for what in ("rebalance", "trace", "letters/replay", "letters/discard")),
    "/api/v2/topologies/orders/letters/x/replay",
    "/logout",
]
PAGES = [
    "/api/v1/topology/summary",
    "/api/v2/topologies",
    "/metrics",
    "/login",
    "/nothing",
    "/api/v1/nothing",
    "/api/v2/nothing",
]


def make_client(operator: FakeOperator, **options: Any) -> TestClient:
    app = make_app(operator, token=TOKEN, clock=lambda: NOW_SECS, **options)  # type: ignore[arg-type]  # a fake
    return TestClient(app, base_url=ORIGIN, raise_server_exceptions=False, follow_redirects=False)


@pytest.fixture
def browser(operator: FakeOperator) -> Iterator[TestClient]:
    """A browser that has logged in."""
    with make_client(operator, routes=[Route("/csrf", csrf_of)]) as client:
        answer = client.post("/login", data={"token": TOKEN, "next": "/csrf"}, headers={"origin": ORIGIN})
        assert answer.status_code == 303
        client.headers["origin"] = ORIGIN
        yield client


async def csrf_of(request: Request) -> PlainTextResponse:
    return PlainTextResponse(request.state.csrf)


# ---- Host


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8088", "localhost.evil.example", "127.0.0.1.nip.io:8088", "", "user@localhost"],
)
@pytest.mark.parametrize("path", PAGES)
def test_a_host_name_that_another_site_points_here_is_refused(client: TestClient, host: str, path: str) -> None:
    assert client.get(path, headers={"host": host}).status_code == 421


# ---- the token


@pytest.mark.parametrize("path", CHANGES)
def test_missing_token_changes_nothing(client: TestClient, operator: FakeOperator, path: str) -> None:
    answer = client.post(path, json={})
    assert answer.status_code == 401
    assert operator.asked == []


@pytest.mark.parametrize(
    "given",
    ["Bearer wrong", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ", f"Basic {TOKEN}", TOKEN, "Bearer \xff"],
)
def test_wrong_token_changes_nothing(client: TestClient, operator: FakeOperator, given: str) -> None:
    answer = client.post(ACTIVATE, headers={"authorization": given.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert operator.asked == []


def test_request_with_the_token_makes_a_change_and_its_origin_is_recorded(
    writer: TestClient, operator: FakeOperator
) -> None:
    assert writer.post(ACTIVATE).json()["done"]
    assert operator.asked == [("activate", operator.known[0]["id"], {}, "rest from testclient")]


def test_no_response_allows_another_site_to_read_it(client: TestClient) -> None:
    answer = client.get("/api/v1/topology/summary", headers={"origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    for path in ("/api/v1/topology/summary?callback=steal", "/api/v1/topology/orders?callback=steal"):
        assert "steal(" not in client.get(path).text
        assert "error" in client.get(path).json()


def test_a_private_server_shows_nothing_without_the_token(operator: FakeOperator) -> None:
    with make_client(operator, private=True) as client:
        assert [client.get(path).status_code for path in PAGES] == [401, 401, 401, 200, 401, 401, 401]
        assert client.get("/api/v2/topologies", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        page = client.get("/topology/orders?window=600", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/login?next=/topology/orders%3Fwindow%3D600")
        client.post("/login", data={"token": TOKEN}, headers={"origin": ORIGIN})
        assert client.get("/api/v2/topologies").status_code == 200


def test_a_token_that_could_be_guessed_is_refused(operator: FakeOperator) -> None:
    with pytest.raises(ConfigError, match="16 or more"):
        make_app(operator, token="short")  # type: ignore[arg-type]


# ---- sessions of browsers


def test_a_browser_logs_in_and_changes_something(browser: TestClient, operator: FakeOperator) -> None:
    csrf = browser.get("/csrf").text
    assert browser.post(ACTIVATE, headers={"x-csrf-token": csrf}).json()["done"]
    assert browser.post(ACTIVATE, data={"csrf": csrf}).json()["done"]
    assert [asked[-1] for asked in operator.asked] == ["ui from testclient"] * 2


def test_the_session_is_kept_from_scripts_and_other_sites(operator: FakeOperator) -> None:
    with make_client(operator) as client:
        answer = client.post("/login", data={"token": TOKEN}, headers={"origin": ORIGIN})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert cookie.startswith("sparkbolt_session_8088=")
    assert TOKEN not in cookie


@pytest.mark.parametrize("csrf", ["", "wrong", "0" * 64, "\xff"])
def test_a_session_without_its_pages_csrf_token_changes_nothing(
    browser: TestClient, operator: FakeOperator, csrf: str
) -> None:
    assert browser.post(ACTIVATE, headers={"x-csrf-token": csrf.encode("latin-1")}).status_code == 403
    assert browser.post(ACTIVATE, data={"csrf": csrf}).status_code == 403
    assert operator.asked == []


def test_the_csrf_token_of_another_session_is_refused(operator: FakeOperator) -> None:
    found = []
    for _ in range(2):
        with make_client(operator, routes=[Route("/csrf", csrf_of)]) as client:
            client.post("/login", data={"token": TOKEN}, headers={"origin": ORIGIN})
            found.append(client.get("/csrf").text)
            if len(found) == 2:
                assert client.post(ACTIVATE, headers={"x-csrf-token": found[0]}).status_code == 403
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:3000", "http://localhost", f"{ORIGIN}.evil.example"]
)
@pytest.mark.parametrize("who", ["browser", "writer"])
def test_a_page_of_another_site_changes_nothing(
    request: pytest.FixtureRequest, operator: FakeOperator, origin: str, who: str
) -> None:
    client: TestClient = request.getfixturevalue(who)
    csrf = client.get("/csrf").text if who == "browser" else ""
    assert client.post(ACTIVATE, headers={"origin": origin, "x-csrf-token": csrf}).status_code == 403
    assert client.post("/login", data={"token": TOKEN}, headers={"origin": origin}).status_code == 403
    assert operator.asked == []


def test_a_session_ends_on_timeout_with_another_token_and_on_logout(browser: TestClient) -> None:
    now = [1000.0]
    sessions = Sessions(TOKEN, clock=lambda: now[0])
    session = sessions.begin()
    assert sessions.holds(session)
    assert not Sessions("another-token-0123", clock=lambda: now[0]).holds(session)
    now[0] += SESSION_SECS + 1
    assert not sessions.holds(session)
    csrf = browser.get("/csrf").text
    assert csrf
    assert browser.post("/logout", headers={"x-csrf-token": csrf}).status_code == 303
    assert browser.get("/csrf").text == ""


def test_a_wrong_token_at_the_login_is_reported(client: TestClient) -> None:
    answer = client.post("/login", data={"token": "wrong"}, headers={"origin": ORIGIN})
    assert answer.status_code == 401
    assert "This token is wrong" in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "leads_to", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"]
)
def test_the_login_leads_to_no_other_site(operator: FakeOperator, leads_to: str) -> None:
    with make_client(operator) as client:
        answer = client.post("/login", data={"token": TOKEN, "next": leads_to}, headers={"origin": ORIGIN})
        assert answer.headers["location"] == "/"
        assert "evil" not in client.get("/login", params={"next": leads_to}).text


# ---- bodies


@pytest.mark.parametrize("size", [BODY_BYTES_MAX + 1, 10 * BODY_BYTES_MAX])
def test_a_body_that_is_too_large_is_not_read(writer: TestClient, operator: FakeOperator, size: int) -> None:
    answer = writer.post(ACTIVATE, content=b"x" * size, headers={"content-type": "application/json"})
    assert answer.status_code == 413

    def pieces() -> Iterator[bytes]:
        yield from (b"x" * 65536 for _ in range(size // 65536 + 1))

    assert writer.post(ACTIVATE, content=pieces()).status_code == 413
    assert operator.asked == []


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b'"x"', b"\xff", b"[]"])
def test_a_body_that_is_not_a_json_object_is_reported(writer: TestClient, operator: FakeOperator, body: bytes) -> None:
    for path in (ACTIVATE, "/api/v1/topology/orders/rebalance/0"):
        answer = writer.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 500)
        assert "body" in answer.text
    assert operator.asked == []


# ---- what others chose is never markup


@pytest.mark.parametrize("path", PAGES)
def test_every_response_forbids_scripts_and_frames(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    for name, value in ANSWER_HEADERS.items():
        assert headers[name] == value
    policy = headers["content-security-policy"]
    assert "unsafe-" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["cache-control"] == "no-store"


def test_texts_that_are_scripts_stay_values(client: TestClient, operator: FakeOperator) -> None:
    hostile = quote(HOSTILE, safe="")
    assert "/" in HOSTILE  # no path leads to it by name, and its id is the same with a number
    id_ = operator.known[-1]["id"]
    found = [
        client.get("/api/v1/topology/summary"),
        client.get("/api/v2/topologies"),
        client.get("/api/v2/topologies/orders/stories"),
        client.get("/api/v2/topologies/orders/letters"),
        client.get(f"/api/v1/topology/{hostile}"),
        client.get(f"/api/v1/topology/orders/component/{quote(NASTY)}"),
        client.get(f"/api/v2/topologies/{quote(id_)}"),
        client.get(f"/{quote(NASTY)}"),
        client.get("/metrics"),
    ]
    for answer in found:
        assert answer.headers["content-type"].partition(";")[0] in (
            "application/json",
            "application/problem+json",
            "text/plain",
        )
        assert answer.headers["x-content-type-options"] == "nosniff"
        if "json" in answer.headers["content-type"]:
            json.loads(answer.text)
    assert NASTY in found[0].text  # the value is there, as it is


def test_a_slow_body_is_given_up(operator: FakeOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    import anyio

    monkeypatch.setattr(module, "BODY_SECS_MAX", 0.05)
    app = make_app(operator, token=TOKEN)  # type: ignore[arg-type]
    sent: list[Any] = []

    async def receive() -> Any:
        await anyio.sleep_forever()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", HOST.encode()), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "path": ACTIVATE, "raw_path": ACTIVATE.encode(), "query_string": b""}
    anyio.run(app, {**scope, "headers": headers, "scheme": "http", "server": ("localhost", 8088)}, receive, send)
    assert sent[0]["status"] == 408
    assert operator.asked == []
