"""Emitted tuples: what a test compares with the values that it expects, in the order of the fields or by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparkbolt.api.named_fields import by_name


class EmittedTuple(list[Any]):
    """The values of a tuple that a component has emitted, a list in the order of the fields.

    It is also equal to a mapping with its fields and values, and to an instance of a NamedTuple or a dataclass that has
    them.

    >>> be = EmittedTuple(("word", "count"), ["be", 2])
    >>> be == ["be", 2], be == {"count": 2, "word": "be"}, be == {"word": "be"}
    (True, True, False)
    """

    __slots__ = ("fields",)

    def __init__(self, fields: tuple[str, ...], values: Iterable[Any]) -> None:
        """Store the values, and the names of their fields."""
        super().__init__(values)
        self.fields = fields

    def __eq__(self, other: object) -> bool:
        """Whether the other object has the same values, in the same order or by the same names."""
        named = by_name(other)
        return super().__eq__(other) if named is None else dict(zip(self.fields, self, strict=False)) == dict(named)

    def __ne__(self, other: object) -> bool:
        """Whether it has not."""
        return not self == other

    __hash__ = None
