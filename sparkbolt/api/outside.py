"""Outside: how a component names what it uses outside of Spark: servers, databases, queues."""

from __future__ import annotations

from abc import ABC, abstractmethod


class UsesOutside:
    """A component that uses something which two topologies should not use by accident.

    Its ``str`` names it, without secrets: "RabbitMQSpout(queue 'orders' at rabbit:5672/)".
    """


class WritesOutside(UsesOutside, ABC):
    """A bolt whose ``flush``, or ``commit`` in the driver, waits for the answer of a server or a database."""

    @property
    @abstractmethod
    def place(self) -> str:
        """What it writes to, without secrets: "table orders at postgresql://db/shop"."""
