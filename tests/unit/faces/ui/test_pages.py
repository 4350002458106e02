"""What people see of topologies in a browser: pages whole, empty, in trouble, and with names that try to break out."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from starlette.testclient import TestClient

from sparkbolt.api.config import Config
from sparkbolt.control.documents import Answer, TopologyDocument, TopologyEntry
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.ui.app import make_app
from sparkbolt.faces.ui.operator_calls import LateAnswerError
from sparkbolt.faces.ui.page_routes import page_options
from sparkbolt.faces.ui.topology_pages import by_name
from sparkbolt.faces.ui.urls import path_of
from tests.unit.control import shop
from tests.unit.control.fake import NOW_SECS, TOKEN, FakeOperator
from tests.unit.control.shop import CLICKS, NASTY, NIGHTLY, NOW_MS, ORDERS, STOCK

BY = "ui from testclient"
BASE = f"/topologies/{ORDERS}"
REPLAY = {
    **dict.fromkeys(("ids", "values", "target", "kind", "search", "cause", "component", "spout")),
    "every": False,
    "again": False,
}
"""The arguments of ``replay`` without any choice."""
LETTER = f"{1:032x}"
PAGES = [
    "/",
    "/login",
    BASE,
    f"{BASE}?window=86400",
    f"{BASE}/components/orders",
    f"{BASE}/components/enrich?window=:all-time",
    f"{BASE}/components/revenue",
    f"{BASE}/components/__acker",
    f"{BASE}/state/revenue",
    f"{BASE}/state/revenue?key=12:19",
    f"{BASE}/state/enrich",
    f"{BASE}/peek/enrich",
    f"{BASE}/peek/alerts?match=x",
    f"{BASE}/micro-batches",
    f"{BASE}/errors",
    f"{BASE}/trees",
    f"{BASE}/trees?state=late",
    f"{BASE}/trees?state=open",
    f"{BASE}/trees?state=acked",
    f"{BASE}/trees/{shop.root(3)}",
    f"{BASE}/dead-letters",
    f"{BASE}/dead-letters?show=all",
    f"{BASE}/dead-letters/{LETTER}",
    f"{BASE}/kafka?window=:all-time",
    f"{BASE}/settings",
    f"{BASE}/log",
    f"{BASE}/do/kill",
]
VOID = ["br", "hr", "img", "input", "link", "meta", "path", "circle", "rect"]


class Page(HTMLParser):
    """What a page contains: its elements, whether they are closed, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        self.words += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def client_of(operator: Any, *, logged_in: bool = True) -> TestClient:
    app = make_app(operator, token=TOKEN, **page_options(), clock=lambda: NOW_SECS)
    client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
    if logged_in:
        assert client.post("/login", data={"token": TOKEN}, follow_redirects=False).status_code == 303
    return client


def seen(operator: Any, path: str, status: int = 200) -> Page:
    answer = client_of(operator).get(path)
    assert answer.status_code == status, answer.text
    return Page(answer.text)


@pytest.mark.parametrize("path", ["/", BASE])
def test_an_unreadable_home_is_reported_on_every_page(path: str) -> None:
    operator = FakeOperator()
    operator.home.trouble = "the home /shared cannot be read: its content is gone"
    words = seen(operator, path).words
    assert "the home /shared cannot be read: its content is gone. The pages show the last known state" in words
    assert "cannot be read" not in seen(FakeOperator(), path).words


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_complete_and_usable_with_a_keyboard_and_a_screen_reader(path: str) -> None:
    page = seen(FakeOperator(), path)
    assert page.wrong == []
    assert page.open == []
    assert len(page.all("h1")) == 1
    assert page.all("html")[0]["lang"] == "en"
    assert {"href": "#main", "class": "skip"} in page.all("a")
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(head.get("scope") in ("row", "col") for head in page.all("th"))
    labelled = {label.get("for") for label in page.all("label")}
    for control in [*page.all("input"), *page.all("select"), *page.all("textarea")]:
        if control.get("type") not in ("hidden", "checkbox"):
            assert control["id"] in labelled, control
    for attributes in (each for _, each in page.elements):
        for name in ("aria-labelledby", "aria-describedby"):
            if name in attributes:
                assert attributes[name] in ids


@pytest.mark.parametrize("path", PAGES)
def test_no_page_has_inline_scripts_or_styles_or_loads_anything_from_elsewhere(path: str) -> None:
    page = seen(FakeOperator(), path)
    for tag, attributes in page.elements:
        assert tag != "style"
        assert not [name for name in attributes if name == "style" or name.startswith("on")], (tag, attributes)
        if tag in ("script", "link", "img"):
            assert (attributes.get("src") or attributes.get("href") or "").startswith("/static/")
    assert all(script.get("src") for script in page.all("script"))


@pytest.mark.parametrize("path", [path for path in PAGES if "login" not in path])
def test_names_values_and_errors_are_escaped_in_pages(path: str) -> None:
    operator = FakeOperator()
    document = operator.documents[ORDERS]
    _rename(document)
    answer = client_of(operator).get(path.replace("/enrich", f"/{'%3Cb%3Enrich'}"))
    assert answer.status_code == 200
    assert NASTY not in answer.text
    assert "<b>nrich" not in answer.text
    assert "\"'><i>" not in answer.text


def _rename(document: TopologyDocument) -> None:
    """Names and sentences that try to break out, wherever a topology has some."""
    document["entry"].update(name="\"'><i>", why=NASTY, host=NASTY, user=NASTY)
    for one in document["components"]:
        one["type"] = NASTY
        if one["id"] == "enrich":
            one["id"] = "<b>nrich"
        for way in one["inputs"]:
            way["component"] = way["component"].replace("enrich", "<b>nrich")
            way["fields"] = [NASTY]
    document["events"][0].update(text=NASTY, by=NASTY, kind=NASTY)
    document["settings"][NASTY] = NASTY
    document["now"].update(trouble=NASTY, outages=[NASTY], hung=[NASTY], waits_for=NASTY)
    document["now"]["lag"] = {"orders": {NASTY: 7}}


@pytest.mark.parametrize("topology", [CLICKS, STOCK, NIGHTLY])
@pytest.mark.parametrize("part", ["", "micro-batches", "errors", "trees", "dead-letters", "kafka", "settings", "log"])
def test_pages_of_inactive_dead_or_ended_topologies_say_what_to_do(topology: str, part: str) -> None:
    page = seen(FakeOperator(), path_of(topology, part))
    assert page.wrong == []
    if part in ("micro-batches", "trees", "dead-letters", "log"):
        assert any("empty" in (attributes.get("class") or "") for attributes in page.all("p"))


def test_a_page_shows_the_lag_of_a_topology_with_its_units() -> None:
    operator = FakeOperator()
    operator.documents[ORDERS]["entry"]["gist"]["lags"] = {"bytes": 5_400_000, "messages": 3}
    assert "5.1\xa0MiB + 3\xa0messages" in seen(operator, BASE).words


def test_lag_of_files_is_shown_in_bytes_and_seconds_by_short_names() -> None:
    operator = FakeOperator()
    document = operator.documents[ORDERS]
    source = "/logs/a.log#17-5-4fd786f4855f5fa2"
    document["components"][0]["position_unit"] = "bytes"
    document["now"].update(lag={"orders": {source: 5_400_000}}, lag_secs={"orders": {source: 95.2}})
    page = seen(operator, path_of(ORDERS, "kafka"))
    assert "a.log5.1 MiB1 min 35 s" in " ".join(page.words.split())
    assert "KiB" in page.words[: page.words.index("a.log5.1")]  # the chart
    assert seen(operator, BASE).words.count("lag 5.1\xa0MiB") == 2
    assert page.wrong == []


def test_a_topology_without_any_known_data_is_shown() -> None:
    operator = FakeOperator()
    document = operator.documents[ORDERS]
    document.update(components=[], windows={}, errors=[], events=[], settings={})
    document["now"].update(lag={}, memory=[], state={}, slowest=None, micro_batch=None, watermarks={}, pending={})
    for part in ("", "micro-batches", "trees", "dead-letters", "kafka", "settings", "log", "errors"):
        assert seen(operator, path_of(ORDERS, part)).wrong == []


def test_topologies_are_grouped_by_name_with_those_that_run_first() -> None:
    def run(id_: str, state: str) -> TopologyEntry:
        name, number, started = id_.split("-")
        return shop.entry(name, state, int(number), started_ms=int(started) * 1000)

    runs = [run("b-1-100", "ended"), run("a-1-300", "failed"), run("a-2-200", "active"), run("c-1-900", "dead")]
    runs += [run("a-3-100", "inactive"), run("b-2-150", "ended")]
    rows = [(one["id"], [other["id"] for other in others]) for one, others in by_name(runs)]
    assert rows == [("a-2-200", ["a-1-300"]), ("a-3-100", []), ("c-1-900", []), ("b-2-150", ["b-1-100"])]
    assert "2 other runs of orders" in seen(FakeOperator(), "/").words


def test_only_settings_that_differ_from_their_defaults_are_shown() -> None:
    operator = FakeOperator()
    document = operator.documents[ORDERS]
    document["settings"] = {**vars(Config()), "max_attempts": 7}
    document["components"][0]["settings"] = {**document["settings"], "max_spout_pending": 5000}
    words = seen(operator, f"{BASE}/settings").words
    table = words[words.index("Settings that differ") : words.index("This run")]
    assert " ".join(table.split()) == (
        "Settings that differ from the defaults SettingValuemax attempts7 "
        "Settings of components ComponentSettingValueordersmax spout pending5000"
    )
    assert "5000" in seen(operator, f"{BASE}/components/orders").words
    document["settings"] = vars(Config())
    assert "All settings have their defaults" in seen(operator, f"{BASE}/settings").words


def test_a_home_without_topologies_says_how_to_start_one() -> None:
    operator = FakeOperator()
    operator.known = []
    assert "sparkbolt run" in seen(operator, "/").words


def test_an_unresponsive_topology_is_shown_with_a_note_that_its_numbers_are_old() -> None:
    operator = FakeOperator()
    operator.documents[ORDERS]["live"] = False
    assert "The topology did not answer" in seen(operator, BASE).words


def test_a_components_page_leads_to_its_newest_tuples() -> None:
    operator = FakeOperator()
    client = client_of(operator)
    assert f'href="{BASE}/peek/enrich"' in client.get(f"{BASE}/components/enrich").text
    assert "Waiting for tuples" in client.get(f"{BASE}/peek/enrich").text
    operator.peeked = [shop.peeked(1), {**shop.peeked(2), "values": NASTY}]
    page = client.get(f"{BASE}/peek/enrich", params={"stream": "rejected", "match": "s-1"}).text
    assert page.index("enrich[2]") < page.index("s-1&#39;}"), "the newest tuple is first"
    assert NASTY not in page
    assert 'data-part="peek"' in page, "the page asks for those that follow"
    asked = {"component": "enrich", "stream": "rejected", "match": "s-1", "after": 0, "last": 30}
    assert operator.live_asked[-1] == ("peek", asked)
    operator.live_error = WrongUseError("it has no such stream")
    assert "it has no such stream" in client.get(f"{BASE}/peek/enrich", params={"stream": "x"}).text


def test_a_bolts_page_leads_to_its_state_where_a_key_is_looked_up() -> None:
    client = client_of(FakeOperator())
    assert f'href="{BASE}/state/revenue"' in client.get(f"{BASE}/components/revenue").text
    page = client.get(f"{BASE}/state/revenue").text
    assert "data-still" in page, "it is not read every three seconds"
    assert "7 keys and attributes." in page
    assert "x" * 160 not in page, "a long value is cut"
    assert "revenue[1]" in page
    found = client.get(f"{BASE}/state/revenue", params={"key": '["a", 7]'}).text
    assert "revenue[1]" in found
    assert "null" in found
    assert "revenue[0]" not in found
    assert "x" * 300 in client.get(f"{BASE}/state/revenue", params={"key": "12:19"}).text
    assert "did you mean" in client.get(f"{BASE}/state/revenue", params={"key": "12:20"}).text
    assert "keeps no state" in client.get(f"{BASE}/state/enrich").text


def test_missing_page_is_reported_with_a_way_back() -> None:
    for path in ("/topologies/none", f"{BASE}/components/none", f"{BASE}/trees/none", f"{BASE}/dead-letters/none"):
        page = seen(FakeOperator(), path, 404)
        assert "none" in page.words
        assert "/" in [link["href"] for link in page.all("a")]


@pytest.mark.parametrize(
    ("error", "status"),
    [(LateAnswerError("no answer within 5 s"), 503), (OSError("Stale file handle"), 503), (RuntimeError(NASTY), 500)],
)
def test_an_error_of_a_request_becomes_an_error_page(
    error: Exception, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = FakeOperator()

    def fails(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(operator, "document", fails)
    answer = client_of(operator).get(BASE)
    assert answer.status_code == status
    assert NASTY not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_failing_bolt_is_marked_in_the_picture_and_in_the_list_for_phones() -> None:
    page = seen(FakeOperator(), BASE)
    bolts = {a["href"]: a["class"] for a in page.all("a") if "box" in (a.get("class") or "")}
    assert {path for path, kind in bolts.items() if "failing" in (kind or "")} == {f"{BASE}/components/enrich"}
    assert len([li for li in page.all("li") if "failing" in (li.get("class") or "")]) == 1
    assert page.words.count("540 failed · 96\xa0% busy") == 2


def test_one_time_range_selects_the_numbers_and_the_charts_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = FakeOperator()
    asked: list[int | None] = []
    series = operator.series

    def noted(topology: str, since_ms: int | None = None, until_ms: int | None = None) -> Any:
        asked.append(since_ms)
        return series(topology, since_ms, until_ms)

    monkeypatch.setattr(operator, "series", noted)
    for path in (BASE, f"{BASE}/components/enrich", f"{BASE}/kafka"):
        page = seen(operator, f"{path}?window=10800")
        choices = [div for div in page.all("div") if div.get("role") == "group"]
        assert [div["aria-label"] for div in choices] == ["Time range"]
        assert asked.pop() == NOW_MS - 10_800_000
        assert f"{BASE}/trees?window=10800" in [link["href"] for link in page.all("a")]


def rows_of(page: Page) -> int:
    return len([head for head in page.all("th") if head["scope"] == "row"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "at_first", "at_last"),
    [(f"{BASE}/trees?state=failed", 50, "page=20"), (f"{BASE}/trees?state=open", 70, "page=20"),
     (f"{BASE}/dead-letters?show=all", 60, "page=20")],
)  # fmt: skip
def test_a_thousand_failures_are_shown_in_pages(path: str, at_first: int, at_last: str) -> None:
    operator = FakeOperator(trees=1000, letters=1000)
    page = seen(operator, path)
    assert 50 <= rows_of(page) <= at_first
    assert "Older" in page.words
    last = seen(operator, f"{path}&{at_last}")
    assert rows_of(last) >= 50
    assert "Older" not in last.words


def test_open_trees_are_grouped_by_who_holds_them() -> None:
    page = seen(FakeOperator(), f"{BASE}/trees?state=open")
    assert "revenue[1]" in page.words
    links = [link["href"] or "" for link in page.all("a")]
    assert any("holder=revenue" in link for link in links)
    held = seen(FakeOperator(), f"{BASE}/trees?state=open&holder=nobody[0]")
    assert "No tree is open" in held.words


@pytest.mark.slow
def test_anonymous_user_sees_everything_except_forms_that_change_something() -> None:
    client = client_of(FakeOperator(), logged_in=False)
    for path in PAGES:
        page = Page(client.get(path).text)
        changing = [form for form in page.all("form") if form.get("method") == "post"]
        assert [form for form in changing if form.get("action") not in ("/login", f"{BASE}/do/replay")] == [] or (
            "settings" in path
        ), path
        if path not in ("/login",):
            assert "Log in" in page.words


# What is done.


def acted(operator: FakeOperator, path: str, form: dict[str, str], read: Callable[[Page], None] | None = None) -> Page:
    """Send a form as the browser does, with the CSRF token of a page; then confirm it."""
    client = client_of(operator)
    page = Page(client.get(f"{BASE}/settings").text)
    csrf = next(field["value"] or "" for field in page.all("input") if field.get("name") == "csrf")
    answer = client.post(path, data={**form, "csrf": csrf})
    assert operator.asked == []
    asked = Page(answer.text)
    if read:
        read(asked)
    hidden = {str(field["name"]): field["value"] or "" for field in asked.all("input") if field.get("type") == "hidden"}
    if hidden.get("confirmed") != "yes":
        return asked
    return Page(client.post(path, data=hidden).text)


@pytest.mark.parametrize(
    ("action", "form", "asked"),
    [
        ("activate", {}, {}),
        ("deactivate", {}, {}),
        ("restart", {}, {}),
        ("kill", {"wait_secs": "20"}, {"wait_secs": 20.0}),
        ("kill", {}, {"wait_secs": None}),
        (
            "set",
            {"key": "log-level", "value": "debug", "component": ""},
            {"key": "log-level", "value": "debug", "component": None},
        ),
        (
            "set",
            {"key": "max-spout-pending", "value": "9", "component": "orders"},
            {"key": "max-spout-pending", "value": "9", "component": "orders"},
        ),
        (
            "rebalance",
            {"executors-of": "enrich", "executors": "12"},
            {
                "executors": {"enrich": 12},
                **dict.fromkeys(("num_workers", "wait_secs", "spark_partitions")),
                "reset": False,
            },
        ),
        ("trace", {"message": "orders/3@41"}, {"message": "orders/3@41", "component": None, "stop": False}),
        ("replay", {"letter-aa": "on", "letter-bb": "on"}, {**REPLAY, "ids": ["aa", "bb"]}),
        ("replay", {"kind": "3f2a9c1b"}, {**REPLAY, "kind": "3f2a9c1b"}),
        (
            "replay",
            {"letter-aa": "on", "target": "again.jsonl"},
            {**REPLAY, "ids": ["aa"], "target": "again.jsonl"},
        ),
        ("discard", {"letter-aa": "on"}, {"ids": ["aa"], "kind": None}),
    ],
)
def test_an_action_is_done_once_it_was_confirmed(action: str, form: dict[str, str], asked: dict[str, Any]) -> None:
    operator = FakeOperator()
    page = acted(operator, f"{BASE}/do/{action}", form)
    assert operator.asked == [(action, ORDERS, asked, BY)]
    assert f"{action} of orders" in page.words


def test_a_refusal_is_shown_with_its_explanation() -> None:
    operator = FakeOperator()
    refusal = f"the parallelism of a bolt that keeps state cannot be changed {NASTY}"
    operator.answers["rebalance"] = Answer(done=False, refused=True, text=refusal)
    page = acted(operator, f"{BASE}/do/rebalance", {"executors-of": "revenue", "executors": "8"})
    assert "Rebalance: refused" in page.words
    assert refusal in page.words


def test_an_edited_letter_is_replayed_with_only_the_edits_changed() -> None:
    operator = FakeOperator()
    form = {f"letter-{LETTER}": "on", "field-0": "c-1", "field-1": '"k-7"', "field-2": "1"}
    asked: list[str] = []
    acted(operator, f"{BASE}/do/replay", form, lambda page: asked.append(page.words))
    [(verb, _, arguments, _)] = operator.asked
    assert (verb, arguments["values"]) == ("replay", {"customer": "c-1", "sku": "k-7"})
    assert "new customerc-1new skuk-7" in asked[0]
    assert "field" not in asked[0]


def test_lists_show_the_reason_the_attempts_the_state_and_the_record_by_field_and_texts_without_quotes() -> None:
    for path, attempts in ((f"{BASE}/dead-letters", "5"), (f"{BASE}/trees", "1")):
        words = " ".join(seen(FakeOperator(), path).words.split())
        assert "KeyError: 'sku'" in words
        assert "customer c-118" in words or "customer c-22 sku null amount 1" in words
        assert "waiting" in words or "failed" in words
        assert f" {attempts} " in words


def test_a_record_of_one_text_is_shown_and_edited_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = FakeOperator()
    line = '\nGET /index.html "200"'
    one = {**shop.letter(1), "fields": ["line"], "tuples": [[line]]}
    monkeypatch.setattr(operator, "letters", lambda *arguments, **options: [one])
    monkeypatch.setattr(operator, "letter", lambda *arguments, **options: one)
    for path in (f"{BASE}/dead-letters", f"{BASE}/dead-letters/{LETTER}"):
        assert line in seen(operator, path).words
    acted(operator, f"{BASE}/do/replay", {f"letter-{LETTER}": "on", "field-0": line.replace("\n", "\r\n")})
    assert operator.asked.pop()[2]["values"] is None
    acted(operator, f"{BASE}/do/replay", {f"letter-{LETTER}": "on", "field-0": "GET / 200"})
    assert operator.asked.pop()[2]["values"] == {"line": "GET / 200"}


def test_a_message_of_a_file_is_shown_with_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = FakeOperator()
    source = "/logs/web-1/access.log#17-5-4fd786f4855f5fa2"
    monkeypatch.setattr(operator, "letter", lambda *arguments, **options: {**shop.letter(1), "source": source})
    tree = {**shop.story(1, "failed"), "source": source}
    monkeypatch.setattr(operator, "story", lambda *arguments, **options: tree)
    for path in (f"{BASE}/dead-letters/{LETTER}", f"{BASE}/trees/{tree['root']}"):
        assert "source /logs/web-1/access.log ·" in seen(operator, path).words
        assert "access.log@40" in seen(operator, path).words


def test_letters_that_wait_are_grouped_by_kind_with_a_button_for_each() -> None:
    operator = FakeOperator()
    page = seen(operator, f"{BASE}/dead-letters")
    kinds = operator.letter_kinds(ORDERS)
    assert "By kind" in page.words
    assert kinds[0]["reason"] in page.words
    assert {"type": "hidden", "name": "kind", "value": kinds[0]["kind"]} in [one for _, one in page.elements]
    alone = seen(operator, f"{BASE}/dead-letters?kind={kinds[0]['kind']}")
    assert f"Only letters with kind “{kinds[0]['reason']}”" in alone.words
    assert "By kind" not in alone.words


def test_letters_are_filtered_by_cause_component_and_text_and_all_that_match_are_given_back() -> None:
    operator = FakeOperator()
    page = seen(operator, f"{BASE}/dead-letters?cause=timeout")
    assert "No letter in this list matches" in page.words
    page = seen(operator, f"{BASE}/dead-letters?cause=exception&component=enrich&q=c-2")
    assert "c-22" in page.words
    assert "c-19" not in page.words
    assert "Give all of these back" in page.words
    chosen = {"cause": "exception", "component": "enrich", "search": "c-2"}
    acted(operator, f"{BASE}/do/replay", chosen)
    [(verb, _, arguments, _)] = operator.asked
    assert verb == "replay"
    assert arguments.items() >= {**chosen, "ids": None, "kind": None}.items()


def test_a_letter_that_was_not_edited_is_given_again_as_it_is() -> None:
    operator = FakeOperator()
    form = {f"letter-{LETTER}": "on", "field-0": NASTY, "field-1": "null", "field-2": "1"}
    acted(operator, f"{BASE}/do/replay", form)
    assert operator.asked == [("replay", ORDERS, {**REPLAY, "ids": [LETTER]}, BY)]


def test_an_unreadable_message_is_edited_in_its_original_form(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = FakeOperator()
    broken = {**shop.letter(1), "tuples": [], "fields": []}
    broken["raw"] = {**broken["raw"], "value": {"$bytes": "eyJzdW0iOg=="}}
    monkeypatch.setattr(operator, "letter", lambda *arguments, **options: broken)
    page = seen(operator, f"{BASE}/dead-letters/{LETTER}")
    assert '{"sum":' in page.words
    acted(operator, f"{BASE}/do/replay", {f"letter-{LETTER}": "on", "raw-value": '{"sum": 1}'})
    assert operator.asked == [("replay", ORDERS, {**REPLAY, "ids": [LETTER], "values": {"$value": '{"sum": 1}'}}, BY)]
    operator.asked.clear()
    acted(operator, f"{BASE}/do/replay", {f"letter-{LETTER}": "on", "raw-value": '{"sum":'})
    assert operator.asked == [("replay", ORDERS, {**REPLAY, "ids": [LETTER]}, BY)]


def test_a_topology_known_only_by_its_checkpoint_has_pages() -> None:
    operator = FakeOperator()
    one = shop.entry("nightly", "ended", id="/data/old words", why="it is known by its checkpoint only")
    operator.known.append(one)
    operator.documents[one["id"]] = shop.document(one)
    links = [link["href"] or "" for link in seen(operator, "/").all("a")]
    path = next(link for link in links if "~" in link)
    for part in ("", "/trees", "/components/enrich", "/log"):
        assert "/data/old words" in seen(operator, path + part).words
    seen(operator, "/topologies/~zz", 404)


@pytest.mark.parametrize(
    ("action", "form"),
    [
        ("replay", {}),
        ("discard", {}),
        ("set", {"key": "log-level", "value": " "}),
        ("trace", {"message": " "}),
        ("rebalance", {"executors-of": "enrich", "executors": "many"}),
        ("kill", {"wait_secs": "soon"}),
    ],
)
def test_an_incomplete_form_changes_nothing_and_says_what_is_expected(action: str, form: dict[str, str]) -> None:
    operator = FakeOperator()
    assert "refused" in acted(operator, f"{BASE}/do/{action}", {**form, "confirmed": "yes"}).words
    assert operator.asked == []


def test_link_without_the_token_or_the_csrf_text_changes_nothing() -> None:
    operator = FakeOperator()
    stranger, friend = client_of(operator, logged_in=False), client_of(operator)
    assert stranger.post(f"{BASE}/do/kill", data={"confirmed": "yes"}).status_code == 401
    assert friend.post(f"{BASE}/do/kill", data={"confirmed": "yes"}).status_code == 403
    assert friend.get(f"{BASE}/do/kill?confirmed=yes").status_code == 200
    assert friend.get(f"{BASE}/do/replay").status_code == 404
    assert friend.get(f"{BASE}/do/nothing").status_code == 404
    assert operator.asked == []
