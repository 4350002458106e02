"""The pages in Chromium: wide and narrow, light and dark, with a keyboard only, and without JavaScript."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

from sparkbolt.control.verbs import VERBS
from sparkbolt.faces.ui.serve import login_link
from tests.browser.chromium import Visitor
from tests.unit.control import shop as goods
from tests.unit.control.fake import TOKEN, FakeOperator
from tests.unit.control.shop import NIGHTLY, ORDERS, STOCK

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]

BASE = f"/topologies/{ORDERS}"
LETTER = f"{2:032x}"
PAGES = {
    "topologies": "/",
    "topology": BASE,
    "spout": f"{BASE}/components/orders",
    "component": f"{BASE}/components/enrich",
    "windowed": f"{BASE}/components/revenue",
    "state": f"{BASE}/state/revenue",
    "state-of-a-key": f"{BASE}/state/revenue?key=12:19",
    "micro-batches": f"{BASE}/micro-batches",
    "errors": f"{BASE}/errors",
    "trees": f"{BASE}/trees",
    "open-trees": f"{BASE}/trees?state=open",
    "tree": f"{BASE}/trees/{goods.root(3)}",
    "dead-letters": f"{BASE}/dead-letters",
    "dead-letter": f"{BASE}/dead-letters/{LETTER}",
    "lag": f"{BASE}/kafka",
    "settings": f"{BASE}/settings",
    "log": f"{BASE}/log",
    "kill": f"{BASE}/do/kill",
    "dead": f"/topologies/{STOCK}",
    "ended": f"/topologies/{NIGHTLY}/micro-batches",
    "login": "/login",
}
WINDOWS = [(1280, "light"), (400, "dark")]
"""Each width and each scheme once: axe takes a second for each page."""
Visit = Callable[..., Visitor]


@pytest.mark.parametrize(("width", "scheme"), WINDOWS)
def test_every_page_fits_is_accessible_and_logs_no_error(visit: Visit, width: int, scheme: str) -> None:
    visitor = visit(width=width, scheme=scheme)
    wrong = []
    for path in PAGES.values():
        visitor.goto(path)
        if visitor.overflow() > 0:
            wrong.append(f"{path} is {visitor.overflow()} pixels too wide")
        wrong += visitor.violations()
    assert not wrong + visitor.complaints, "\n".join(wrong + visitor.complaints)


def test_all_pages_of_a_topology_are_reached_by_clicks(visit: Visit) -> None:
    visitor = visit()
    page = visitor.goto("/")
    page.get_by_role("link", name="orders", exact=True).click()
    for name in ("Micro-batches", "Trees", "Dead letters", "Lag", "Settings", "Log", "Overview"):
        page.get_by_role("navigation", name="Pages of orders").get_by_role("link", name=name).click()
        expect(page.locator(".tabs [aria-current=page]")).to_have_text(name)
    page.get_by_role("link", name="enrich, ").click()
    expect(page.get_by_role("heading", name="enrich")).to_be_visible()
    page.get_by_text("KeyError: 'sku'").first.click()
    expect(page.get_by_text("Traceback (most recent call last)").first).to_be_visible()
    assert visitor.complaints == []


def test_a_key_is_looked_up_in_the_state_of_a_bolt_on_a_page_that_is_not_live(visit: Visit) -> None:
    visitor = visit()
    page = visitor.goto(PAGES["windowed"])
    expect(page.locator("#switch-live")).to_be_visible()
    page.get_by_role("link", name="state", exact=True).click()
    expect(page.locator("#switch-live")).to_be_hidden()
    page.get_by_label("Key", exact=True).fill('["a", 7]')
    page.get_by_role("button", name="Look up").click()
    expect(page.get_by_role("row")).to_have_count(2)
    assert visitor.complaints == []


def test_the_printed_link_logs_in_and_leaves_no_token_in_the_address(visit: Visit) -> None:
    visitor = visit(logged_in=False)
    page = visitor.page
    page.goto(login_link(f"{visitor.url}/", TOKEN))
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    assert page.url == f"{visitor.url}/"
    page.go_back()
    assert TOKEN not in page.url
    assert visitor.complaints == []


def test_a_phone_shows_the_flow_and_what_fails(visit: Visit) -> None:
    page = visit(width=390).goto(BASE)
    expect(page.get_by_role("link", name="alerts", exact=True).first).to_be_visible()
    expect(page.locator(".flow-list .failing")).to_contain_text("540 failed")
    expect(page.locator("svg.flow")).to_be_hidden()
    page.goto(f"{page.url}/dead-letters")
    expect(page.get_by_role("link", name="KeyError: <text>")).to_be_in_viewport()
    row = page.get_by_role("region", name="Dead letters", exact=True).locator("tbody tr").first
    row.scroll_into_view_if_needed()
    for text in ("orders/3@40140", "KeyError: 'sku'", "c-22", "waiting"):
        expect(row.get_by_text(text).last).to_be_in_viewport()


def tab_to(visitor: Visitor, wanted: str) -> None:
    """Press Tab until something with this name has the focus."""
    for _ in range(120):
        visitor.page.keyboard.press("Tab")
        name = visitor.page.evaluate(
            "(document.activeElement.labels?.[0] ?? document.activeElement).textContent.trim()"
        )
        if name == wanted:
            return
    raise AssertionError(f"{wanted!r} cannot be reached with Tab")


def test_a_topology_is_killed_with_a_keyboard_only(visit: Visit, shop: FakeOperator) -> None:
    visitor = visit()
    page = visitor.goto(BASE)
    tab_to(visitor, "Skip to the content")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    tab_to(visitor, "Kill")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.keyboard.press("Enter")
    page.wait_for_url("**/do/kill")
    wait = VERBS["kill"].parameters[0].about
    tab_to(visitor, wait[0].upper() + wait[1:])
    page.keyboard.type("20")
    tab_to(visitor, "Kill topology")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("kill of orders")
    assert [asked[:3] for asked in shop.asked] == [("kill", ORDERS, {"wait_secs": 20.0})]


def test_a_dead_letter_is_found_edited_and_replayed(visit: Visit, shop: FakeOperator) -> None:
    visitor = visit(width=400)
    page = visitor.goto(f"{BASE}/dead-letters")
    page.get_by_label("Search").fill("orders/3")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="orders/3@40120").click()
    page.get_by_label("sku").fill("no quotes")
    page.get_by_role("button", name="Give it back").click()
    page.get_by_role("button", name="Give back").or_(page.locator(".mistake")).first.wait_for()
    expect(page.locator(".mistake")).to_contain_text("sku is not JSON")
    page.get_by_label("sku").fill('"k-7"')
    page.get_by_role("button", name="Give it back").click()
    page.get_by_role("button", name="Give back").click()
    expect(page.get_by_text("replay of orders")).to_be_visible()
    [(verb, _, arguments, _)] = shop.asked
    assert verb == "replay"
    assert arguments.items() >= {"ids": [LETTER], "values": {"sku": "k-7"}, "target": None}.items()
    page.get_by_role("link", name="Back").click()
    expect(page.get_by_role("link", name="orders/3@40120")).to_have_count(0)
    assert [one for one in visitor.complaints if "422" not in one] == []


def test_numbers_change_while_the_page_is_open_and_typing_is_not_lost(visit: Visit, shop: FakeOperator) -> None:
    visitor = visit()
    page = visitor.goto(BASE)
    expect(page.locator(".figures")).to_contain_text("5,480")
    shop.documents[ORDERS]["now"]["open_trees"] = 77
    expect(page.locator(".figures")).to_contain_text("77", timeout=20_000)
    page.goto(f"{visitor.url}{BASE}/trees")
    page.get_by_label("Search").fill("orders/3@4")
    shop.trees = 1
    expect(page.locator("[data-part=trees] tbody tr")).to_have_count(1, timeout=20_000)
    expect(page.get_by_label("Search")).to_have_value("orders/3@4")
    page.get_by_role("button", name="Live").click()
    shop.trees = 2
    expect(page.get_by_role("button", name="Paused")).to_be_visible()
    assert visitor.complaints == []


def test_a_chart_is_read_with_the_arrow_keys_and_a_table_is_sorted(visit: Visit) -> None:
    visitor = visit()
    page = visitor.goto(BASE)
    chart = page.locator("figure[data-chart]").nth(1)
    chart.focus()
    page.keyboard.press("Home")
    expect(chart.locator(".readout")).to_contain_text("12:10:00 UTC: p50")
    page.keyboard.press("ArrowRight")
    expect(chart.locator(".readout")).not_to_contain_text("12:10:00")
    bolts = page.get_by_role("region", name="Bolts").locator("tbody th a")
    page.get_by_role("region", name="Bolts").get_by_role("button", name="Capacity").click()
    expect(bolts.first).to_have_text("enrich")
    page.get_by_role("region", name="Bolts").get_by_role("button", name="Capacity").click()
    expect(bolts.first).to_have_text("alerts")
    assert visitor.complaints == []


def test_everything_works_without_javascript(visit: Visit, shop: FakeOperator) -> None:
    visitor = visit(javascript=False)
    page = visitor.goto(BASE)
    page.get_by_role("link", name="Deactivate").click()
    page.get_by_role("button", name="Deactivate").click()
    page.get_by_role("link", name="Overview").first.click()
    expect(page.locator("h1")).to_contain_text("inactive")
    assert [asked[0] for asked in shop.asked] == ["deactivate"]


# The pictures of docs/ui.md.

NOT_SHOWN = {"spout", "errors", "ended", "windowed", "open-trees", "login", "state", "state-of-a-key"}
PICTURES = {
    **{name: (name, 1280, "light") for name in PAGES if name not in NOT_SHOWN},
    "topology-dark": ("topology", 1280, "dark"),
    "topology-narrow": ("topology", 400, "dark"),
}
HIGHEST = 1500
COLOURS = 256


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.campaign
def test_documentation_pictures_are_generated(visit: Visit, name: str, tmp_path: Path) -> None:
    which, width, scheme = PICTURES[name]
    visitor = visit(width=width, scheme=scheme)
    page = visitor.goto(PAGES[which])
    page.wait_for_function("document.fonts.status === 'loaded'")
    high = min(HIGHEST, int(page.evaluate("document.documentElement.scrollHeight")))
    whole = tmp_path / "whole.png"
    page.set_viewport_size({"width": width, "height": high})
    page.screenshot(path=whole)
    target = Path(os.environ.get("SPARKBOLT_SCREENSHOTS", tmp_path)) / f"{name}.png"  # see scripts/screenshots
    with Image.open(whole) as picture:
        picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)
    assert target.stat().st_size < 200_000
