"""Words: enums whose members behave as plain text outside the code.

A member is pickled as its text, and unpickling returns a str: compare with ``==``, never with ``is``, and call ``of``
where a member is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Self

EARLIER_NAMES: Final[Mapping[str, str]] = {"set_aside": "given_up"}
"""Words and fields in stored files that have another name now; a reader accepts both."""


class Word(StrEnum):
    """The base of enums of words.

    >>> class Fruit(Word):
    ...     APPLE = "apple"
    >>> Fruit.APPLE, f"an {Fruit.APPLE}", Fruit.APPLE == "apple", {"apple": 1}[Fruit.APPLE]
    ('apple', 'an apple', True, 1)
    """

    def __repr__(self) -> str:
        """As the text."""
        return str.__repr__(self)

    def __reduce_ex__(self, protocol: object, /) -> tuple[Any, ...]:
        """As the text."""
        return str, (self.value,)

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the member with this text; for a word that this version does not know, a member without a name.

        >>> class Fruit(Word):
        ...     APPLE = "apple"
        >>> Fruit.of("apple") is Fruit.APPLE, Fruit.of("pear"), Fruit.of("pear") in (Fruit.APPLE, "pear")
        (True, 'pear', True)
        """
        known = cls._value2member_map_
        member = known.get(text, known.get(EARLIER_NAMES.get(text)))
        if isinstance(member, cls):
            return member
        unknown = str.__new__(cls, text)
        unknown._name_, unknown._value_ = "", text
        return unknown
