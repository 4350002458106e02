"""Which bolts keep something, and that nothing of it is lost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from sparkbolt import BasicBolt, bolt
from sparkbolt.api.components import BoltBase
from sparkbolt.api.statefulness import keeps_state
from tests.unit.poison import run


def logged(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return wrapper


def bare(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: method(*args)


def named(method: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, context: Any) -> Any:
        return method(self, context)

    return wrapper


def set_up(instance: Any) -> None:
    instance.total = 0


def count(holder: list[Any]) -> None:
    holder[0].total += 1


class Counting(BasicBolt):
    outputs = ["n", "thing"]


class Wrapped(Counting):
    @logged
    def prepare(self, context: Any) -> None:
        self.total = 0

    def execute(self, tup: Any, collector: Any) -> None:
        count([self])
        collector.emit([tup["n"], self.total])


class Lambda(Wrapped):
    prepare = bare(Wrapped.prepare)


class Named(Wrapped):
    prepare = named(Wrapped.prepare)


class Helped(Counting):
    def prepare(self, context: Any) -> None:
        set_up(self)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["n"], self.added()])

    def added(self) -> int:
        def add() -> int:
            count([self])
            return self.total

        return add()


class Slotted(Counting):
    __slots__ = ("__hidden", "total")

    def prepare(self, context: Any) -> None:
        self.total = 0
        self.__hidden = 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.total += 1
        self.__hidden += 1
        collector.emit([tup["n"], min(self.total, self.__hidden)])


class Delegating(Counting):
    helper = functools.partialmethod(lambda self: count([self]))

    def prepare(self, context: Any) -> None:
        set_up(self)

    def execute(self, tup: Any, collector: Any) -> None:
        self.helper()
        collector.emit([tup["n"], self.total])


@pytest.mark.parametrize("tested", [Wrapped, Lambda, Named, Helped, Slotted, Delegating])
def test_attribute_stored_indirectly_is_kept(tested: type[BoltBase]) -> None:
    assert keeps_state(tested())
    driver = run(tested(), fails=False)
    assert [thing for _, thing in driver.emitted("bolt")] == list(range(1, 28))


class Plain(BasicBolt):
    outputs = ["n"]
    limit = 3

    def prepare(self, context: Any) -> None:
        super().prepare(context)

    @property
    def twice(self) -> int:
        return 2 * self.limit

    @staticmethod
    def fits(n: int, limit: int) -> bool:
        return n < limit

    def words(self, text: str) -> list[str]:
        return [word for word in text.split() if self.fits(len(word), self.twice)]

    def execute(self, tup: Any, collector: Any) -> None:
        for word in self.words(tup["n"]):
            collector.emit([word])


@bolt(outputs=["n"])
def function(tup: Any) -> Any:
    yield [tup["n"]]


def test_a_bolt_that_only_reads_its_attributes_has_no_state() -> None:
    assert not keeps_state(Plain())
    assert not keeps_state(function)
