"""Outside: how a bolt names the server or database for which its ``flush`` and ``commit`` wait."""

from __future__ import annotations

from abc import ABC, abstractmethod


class WritesOutside(ABC):
    """A bolt whose ``flush``, or ``commit`` in the driver, waits for the answer of a server or a database."""

    @property
    @abstractmethod
    def place(self) -> str:
        """What it writes to, without secrets: "table orders at postgresql://db/shop"."""
