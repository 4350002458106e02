"""What the tests of SqlBolt on SQLite share."""

from __future__ import annotations

import sqlite3
from typing import Any

from sparkbolt.api.tuples import Tuple

CHECKPOINT = "0123456789abcdef" * 2


class Settled:
    """A collector that notes what is acked and failed."""

    def __init__(self) -> None:
        self.acked: list[Tuple] = []
        self.failed: list[tuple[Tuple, Any]] = []

    def ack(self, tup: Tuple) -> None:
        self.acked.append(tup)

    def fail(self, tup: Tuple, reason: Any) -> None:
        self.failed.append((tup, reason))


def query(url: str, statement: str) -> list[Any]:
    """The rows of a statement, in a transaction of its own."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    try:
        with connection:
            return connection.execute(statement).fetchall()
    finally:
        connection.close()
