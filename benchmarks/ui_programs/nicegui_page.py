"""The page with NiceGUI: `python nicegui_page.py PORT`. Each open page keeps its elements in the server."""

from __future__ import annotations

import sys
import time

from nicegui import ui
from page_data import NAMES, POINTS, rows, series

EVERY_SECS = 2.0


def as_objects(moment: int) -> list[dict[str, str]]:
    return [dict(zip(NAMES, row, strict=True)) for row in rows(moment)]


@ui.page("/")
def page() -> None:
    moment = int(time.time())
    ui.label("word-count")
    chart = ui.echart(
        {
            "xAxis": {"type": "category", "data": list(range(POINTS))},
            "yAxis": {"type": "value"},
            "series": [{"type": "line", "data": series(moment)}],
        }
    )
    columns = [{"name": name, "label": name, "field": name} for name in NAMES]
    table = ui.table(columns=columns, rows=as_objects(moment), row_key="component")

    def refresh() -> None:
        now = int(time.time())
        chart.options["series"][0]["data"] = series(now)
        chart.update()
        table.rows = as_objects(now)
        table.update()

    ui.timer(EVERY_SECS, refresh)


ui.run(host="127.0.0.1", port=int(sys.argv[1]), show=False, reload=False, show_welcome_message=False)
