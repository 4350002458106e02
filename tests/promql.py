"""The dashboard's expressions, as tests read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).parents[1] / "docs" / "grafana" / "sparkbolt.json"


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text())


def expressions() -> list[tuple[str, str]]:
    """(where, expression) of each panel's targets, of the annotations and of the variables, as Grafana has them."""
    page = dashboard()
    found = [(panel["title"], target["expr"]) for panel in page["panels"] for target in panel.get("targets", ())]
    found += [(f"annotation {each['name']}", each["expr"]) for each in page["annotations"]["list"]]
    for variable in page["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert asked, variable
            found.append((f"variable {variable['name']}", f"count by ({asked[2]}) ({asked[1]})"))
    return found


def plain(expression: str, interval: str = "1m") -> str:
    """An expression as Grafana sends it, with all values of each variable."""
    text = expression.replace("$__rate_interval", interval)
    return re.sub(r"\$(topology|component)\b", ".*", text)


def legends() -> Iterator[tuple[str, str, set[str]]]:
    """(panel, expression, the labels that its legend shows)."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
