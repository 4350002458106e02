"""The page of a component."""

from __future__ import annotations

import pytest

from sparkbolt.faces.ui.urls import path_of
from tests.unit.control.fake import FakeOperator
from tests.unit.control.shop import ORDERS, metrics
from tests.unit.faces.ui.test_pages import seen


@pytest.mark.parametrize(
    ("component", "many", "other"), [("orders", "attempts", "tuples"), ("enrich", "tuples", "attempts")]
)
def test_a_component_page_says_whether_attempts_or_tuples_failed(component: str, many: str, other: str) -> None:
    words = seen(FakeOperator(), path_of(ORDERS, "components", component)).words
    assert f"Failed {many}" in words
    assert f"Failed {other}" not in words


def test_the_page_of_a_component_shows_its_metrics() -> None:
    operator = FakeOperator()
    operator.documents[ORDERS]["metrics"] = metrics()
    page = seen(operator, path_of(ORDERS, "components", "enrich"))
    words = " ".join(page.words.split())
    assert "requestscounterstatus=503126,000" in words.replace(" ", "")
    assert "4values,mean64.62ms,p505.5ms,p99>100ms" in words.replace(" ", "")
    assert page.wrong == []
    assert "Metrics" not in seen(operator, path_of(ORDERS, "components", "validate")).words
