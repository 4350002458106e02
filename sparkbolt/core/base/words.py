"""Words: enums whose members are plain text for everybody else.

Which question it answers: how is a word both one of a few that the code knows, and a str that users, files and other
versions see?

Rule 1: a member equals its text, prints as its text (``repr`` too), sorts and hashes as its text, and stands in JSON as
its text.
Rule 2: a member is pickled as its text, so that no pickle names an enum of this version. What was pickled comes back as
a str: compare with ``==``, never with ``is``, and read with ``of`` where a member is wanted.
Rule 3: what was written by another version is read with ``of``, which takes every word; a call of the class, which
takes none that it does not know, is for what this version wrote itself.

Read before: nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self


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
        """The member with this text; a member without a name where another version knows a word that this does not.

        >>> class Fruit(Word):
        ...     APPLE = "apple"
        >>> Fruit.of("apple") is Fruit.APPLE, Fruit.of("pear"), Fruit.of("pear") in (Fruit.APPLE, "pear")
        (True, 'pear', True)
        """
        known = cls._value2member_map_.get(text)
        if isinstance(known, cls):
            return known
        unknown = str.__new__(cls, text)
        unknown._name_, unknown._value_ = "", text
        return unknown
