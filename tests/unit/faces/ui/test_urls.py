"""Links lead to what they name, whatever characters an id has: in pages, and in Storm's interface."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from sparkbolt.control.documents import ALL_TIME
from sparkbolt.faces.ui.app import make_app
from sparkbolt.faces.ui.page_routes import page_options
from tests.unit.control.fake import NOW_SECS, TOKEN, FakeOperator
from tests.unit.control.shop import ORDERS
from tests.unit.faces.ui.serving import Serving

IDS = ["a b", "50%", "a/b", "\N{LATIN SMALL LETTER U WITH DIAERESIS}", "%41", "a+b", "a?b#c"]


class Links(HTMLParser):
    """Where the links of a page lead."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(body.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.add(dict(attrs).get("href") or "")


def shop_with(id_: str) -> FakeOperator:
    """The shop, whose bolt ``enrich`` has another id."""
    operator = FakeOperator()
    document = operator.documents[ORDERS]
    for one in document["components"]:
        one["id"] = id_ if one["id"] == "enrich" else one["id"]
        for way in one["inputs"]:
            way["component"] = id_ if way["component"] == "enrich" else way["component"]
    for error in document["errors"]:
        error["component"] = id_ if error["component"] == "enrich" else error["component"]
    for window in document["windows"].values():
        window["components"][id_] = window["components"].pop("enrich")
        for stream in window["streams"]:
            stream["sender"] = id_ if stream["sender"] == "enrich" else stream["sender"]
    return operator


def served(operator: FakeOperator, *, private: bool = False) -> Serving:
    """A real server: a test client decodes the paths of its requests twice."""
    return Serving(
        make_app(
            operator,  # type: ignore[arg-type]  # a fake
            token=TOKEN,
            private=private,
            **page_options(),
            clock=lambda: NOW_SECS,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("id_", IDS)
def test_every_link_of_a_page_leads_to_a_component_of_any_id(id_: str) -> None:
    with served(shop_with(id_)) as serving:
        status, _, body = serving.get(f"/topologies/{ORDERS}")
        assert status == 200
        paths = {link for link in Links(body).found if "/components/" in link}
        assert len(paths) == 7  # the picture and the table lead to the same page
        bodies = {path: serving.get(path)[::2] for path in paths}
        assert {status for status, _ in bodies.values()} == {200}
        [(path, its_page)] = [
            (path, body) for path, (_, body) in bodies.items() if b"bolt \xc2\xb7 shop.orders.Enrich" in body
        ]
        again = {link for link in Links(its_page).found if link.startswith(path)}
        assert len(again) > 2
        assert {serving.get(link)[0] for link in again} == {200}


@pytest.mark.parametrize("id_", IDS)
def test_the_encoded_ids_of_storms_interface_lead_to_their_components(id_: str) -> None:
    with served(shop_with(id_)) as serving:
        page = json.loads(serving.get(f"/api/v1/topology/{ORDERS}?window={ALL_TIME}")[2])
        encoded = next(bolt["encodedBoltId"] for bolt in page["bolts"] if bolt["boltId"] == id_)
        status, _, body = serving.get(f"/api/v1/topology/{ORDERS}/component/{encoded}")
        assert (status, json.loads(body)["id"]) == (200, id_)
        reader = json.loads(serving.get(f"/api/v1/topology/{ORDERS}/component/revenue")[2])
        senders = {one["component"]: one["encodedComponentId"] for one in reader["inputStats"]}
        assert senders[id_] == encoded


def test_the_login_of_a_private_server_leads_back_to_the_page_of_an_id_with_escapes() -> None:
    with served(shop_with("%41"), private=True) as serving:
        path = f"/topologies/{ORDERS}/components/%2541"
        status, headers, _ = serving.get(f"{path}?window=600", {"accept": "text/html"})
        assert (status, headers["location"]) == (
            303,
            f"/login?next=/topologies/{ORDERS}/components/%252541%3Fwindow%3D600",
        )
