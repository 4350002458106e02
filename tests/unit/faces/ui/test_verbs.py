"""A new verb is a function: the command line, REST, its schema, the pages and the topology then have it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from starlette.testclient import TestClient

from sparkbolt.control.documents import Answer, done
from sparkbolt.control.operator import Operator
from sparkbolt.control.parameters import Parameter
from sparkbolt.control.steering import Steering
from sparkbolt.control.verbs import VERBS, Deed, Verb
from sparkbolt.faces.cli import main
from sparkbolt.faces.ui import make_app
from sparkbolt.faces.ui.page_routes import page_options
from sparkbolt.spark.checkpoint_files import open_files
from tests.unit.control.test_operator import Running

TOKEN = "a-token-for-the-verbs"
BASE = "/topologies/words-1-100/do/greet-us"


def greet_us(
    steering: Steering,
    by: str,
    whom: Annotated[str, Parameter(lowest=1)],
    *,
    times: Annotated[int, Parameter(lowest=1, highest=3, options=("-t", "--times"))] = 1,
) -> Deed:
    """Greet somebody.

    Args:
        steering: handles the requests to the topology.
        by: who asks.
        whom: the name.
        times: how often.
    """

    def act() -> Answer:
        steering.note("greeted", f"{whom} x{times}", by)
        return done(f"{steering.topology.name} greets {whom} {times} time(s)")

    return act


@pytest.fixture
def running(home: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setitem(
        VERBS, "greet-us", Verb.of(greet_us, effect="The topology greets somebody.", title="Greet somebody")
    )
    topology = Running(home)
    yield topology
    topology.close()


@pytest.fixture
def client(running: Running) -> TestClient:
    app = make_app(Operator(open_files=open_files), token=TOKEN, **page_options())
    return TestClient(app, base_url="http://localhost")


def greetings(running: Running) -> list[tuple[str, str | None]]:
    return [(event["text"], event["by"]) for event in running.steering.events.all() if event["kind"] == "greeted"]


def test_a_new_verb_is_a_command(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet-us", "words", "Ann", "-t", "2"]) == 0
    assert capsys.readouterr().out == "words greets Ann 2 time(s)\n"
    assert [text for text, _ in greetings(running)] == ["Ann x2"]
    assert main(["greet-us", "words", "Ann", "-t", "4"]) == 2
    assert "must be a whole number from 1 to 3, got '4'" in capsys.readouterr().err
    main(["greet-us", "--help"])
    help_ = capsys.readouterr().out
    assert "-t N, --times N" in help_
    assert "how often" in help_


def test_a_new_verb_is_a_route_with_a_schema(running: Running, client: TestClient) -> None:
    described = client.get("/api/v2/openapi.json").json()["paths"]["/api/v2/topologies/{topology}/greet-us"]["post"]
    assert described["summary"] == "Greet somebody."
    assert described["security"] == [{"token": []}]
    assert described["requestBody"]["content"]["application/json"]["schema"] == {
        "type": "object",
        "properties": {
            "whom": {"type": "string", "minLength": 1, "description": "The name."},
            "times": {"type": "integer", "default": 1, "minimum": 1, "maximum": 3, "description": "How often."},
        },
        "additionalProperties": False,
        "required": ["whom"],
    }
    path, allowed = "/api/v2/topologies/words/greet-us", {"authorization": f"Bearer {TOKEN}"}
    assert client.post(path, json={"whom": "Ann"}).status_code == 401
    wrong = client.post(path, json={"whom": "Ann", "times": 9}, headers=allowed)
    assert (wrong.status_code, wrong.json()["detail"]) == (400, "times must be a whole number from 1 to 3, got 9")
    answer = client.post(path, json={"whom": "Ann"}, headers=allowed)
    assert (answer.status_code, answer.json()["text"]) == (200, "words greets Ann 1 time(s)")
    assert greetings(running) == [("Ann x1", "rest from testclient")]


def test_a_new_verb_has_a_button_and_a_form_that_needs_confirmation(running: Running, client: TestClient) -> None:
    client.post("/login", data={"token": TOKEN})
    assert f'href="{BASE}">Greet somebody</a>' in client.get("/topologies/words-1-100").text
    page = client.get(BASE).text
    assert "The topology greets somebody." in page
    assert '<label for="whom">The name</label>' in page
    csrf = re.search(r'name="csrf" value="([^"]+)"', page)
    assert csrf
    form = {"csrf": csrf[1], "confirmed": "yes", "times": "2"}
    assert "Enter the name." in client.post(BASE, data=form).text
    answer = client.post(BASE, data={**form, "whom": "Ann"})
    assert "words greets Ann 2 time(s)" in answer.text
    assert greetings(running) == [("Ann x2", "ui from testclient")]


def test_a_running_topology_checks_requests_from_its_socket(running: Running) -> None:
    operator = Operator(open_files=open_files)
    assert operator.change("words", "greet-us", whom="Ann", by="bob")["text"] == "words greets Ann 1 time(s)"
    assert "times must be a whole number" in operator.change("words", "greet-us", whom="Ann", times=0, by="bob")["text"]
    assert greetings(running) == [("Ann x1", "bob")]
