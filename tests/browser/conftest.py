"""What tests in a browser share: one Chromium, a shop behind a real server, and visitors who are logged in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from sparkbolt.faces.ui.app import make_app
from sparkbolt.faces.ui.page_routes import page_options
from tests.browser.chromium import Visitor, chromium
from tests.unit.control.fake import NOW_SECS, TOKEN, FakeOperator
from tests.unit.faces.ui.serving import Serving


@pytest.fixture(scope="module")  # Playwright leaves a loop running: other tests need their thread without it
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def shop() -> FakeOperator:
    return FakeOperator()


@pytest.fixture
def url(shop: FakeOperator) -> Iterator[str]:
    app = make_app(
        shop,  # type: ignore[arg-type]  # a fake
        token=TOKEN,
        **page_options(),
        clock=lambda: NOW_SECS,
    )
    with Serving(app) as serving:
        yield serving.url


@pytest.fixture
def visit(browser: Browser, url: str) -> Iterator[Callable[..., Visitor]]:
    """Makes a visitor, who is logged in unless told otherwise."""
    visitors: list[Visitor] = []

    def made(*, logged_in: bool = True, **options: Any) -> Visitor:
        visitors.append(Visitor(browser, url, **options))
        if logged_in:
            visitors[-1].log_in(TOKEN)
        return visitors[-1]

    yield made
    for visitor in visitors:
        visitor.close()
