"""The dashboard for Grafana names only metrics and labels that are exported, and is whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tests.promql import expressions, legends, plain
from tests.unit.control.fake import FakeOperator


@pytest.fixture
def exported(client: TestClient, operator: FakeOperator) -> dict[str, set[str]]:
    """The labels of each metric that is exported, of topologies one of which follows a file."""
    operator.follow_a_file()
    text = client.get("/metrics", headers={"accept": "application/openmetrics-text"}).text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def selectors(node: Any) -> Iterator[Any]:
    """The vector selectors of an expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    elif isinstance(node, promql_parser.MatrixSelector):
        yield node.vector_selector
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from selectors(argument)
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from selectors(node.lhs)
        yield from selectors(node.rhs)
    elif not isinstance(node, promql_parser.NumberLiteral | promql_parser.StringLiteral):
        yield from selectors(node.expr)


def groupings(node: Any) -> Iterator[set[str]]:
    """The labels that aggregations of an expression keep."""
    if isinstance(node, promql_parser.AggregateExpr):
        if node.modifier is not None:
            yield set(node.modifier.labels)
        yield from groupings(node.expr)
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from groupings(node.lhs)
        yield from groupings(node.rhs)
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from groupings(argument)


@pytest.mark.parametrize(("where", "expression"), expressions())
def test_each_expression_names_metrics_and_labels_that_are_exported(
    exported: dict[str, set[str]], where: str, expression: str
) -> None:
    tree = promql_parser.parse(plain(expression))
    found = list(selectors(tree))
    assert found
    for selector in found:
        assert selector.name in exported
        assert {matcher.name for matcher in selector.matchers.matchers} <= exported[selector.name]
    known = set.union(*(exported[selector.name] for selector in found))
    for labels in groupings(tree):
        assert labels <= known


@pytest.mark.parametrize(("panel", "expression", "shown"), list(legends()))
def test_each_legend_shows_labels_that_its_expression_keeps(
    exported: dict[str, set[str]], panel: str, expression: str, shown: set[str]
) -> None:
    tree = promql_parser.parse(plain(expression))
    kept = list(groupings(tree)) or [exported[selector.name] for selector in selectors(tree)]
    if "histogram_quantile" in expression:
        kept = [labels - {"le"} for labels in kept]
    assert shown <= kept[0]


def test_the_metrics_that_matter_are_shown(exported: dict[str, set[str]]) -> None:
    shown = {name for _, expression in expressions() for name in re.findall(r"sparkbolt_\w+", expression)}
    left_out = {name for name in exported if name.startswith("sparkbolt_")} - shown
    # What is not shown: sums and counts of histograms, and what is of use for alerts and joins only.
    assert {re.sub(r"_(sum|count)$", "", name) for name in left_out} == {
        "sparkbolt_topology_answers",
        "sparkbolt_topology_state",
        "sparkbolt_topology_info",
        "sparkbolt_tuples_acked_total",
        "sparkbolt_complete_latency_seconds",
        "sparkbolt_execute_latency_seconds",
        "sparkbolt_open_windows",
        "sparkbolt_state_rows",
    }
