"""What tests of the UI share: an operator that is a fake, and a client of the application that asks it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from sparkbolt.faces.ui import make_app
from tests.unit.control.fake import NOW_SECS, TOKEN, FakeOperator


@pytest.fixture
def operator() -> FakeOperator:
    return FakeOperator(is_hostile=True)


@pytest.fixture
def client(operator: FakeOperator) -> Iterator[TestClient]:
    """Without a token: for reading."""
    app = make_app(operator, token=TOKEN, clock=lambda: NOW_SECS)  # type: ignore[arg-type]  # a fake
    with TestClient(app, base_url="http://localhost:8088", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def writer(client: TestClient) -> TestClient:
    """With the token: for changes."""
    client.headers["authorization"] = f"Bearer {TOKEN}"
    return client
