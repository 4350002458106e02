"""What is started ahead of a query fails silently: the query itself will say why."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from sparkbolt.spark.warming import warm_up
from tests.unit.control.test_home import wait_for


class Broken:
    def range(self, count: int) -> Any:
        raise OSError("no such interpreter")


def test_what_cannot_be_started_ahead_is_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    session: Any = Broken()
    with caplog.at_level(logging.DEBUG, "sparkbolt"):
        warm_up(session)
        assert wait_for(lambda: "sparkbolt-warming" not in [thread.name for thread in threading.enumerate()])
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "no Python worker could be started ahead: no such interpreter")
    ]
