"""Links between pages, for whoever checks or makes them: the code host's rules, which the site keeps too.

Rule 1: code is no prose: what looks like a link or a heading in a block or a span of code is none.
Rule 2: an anchor is the one that the code host makes of a heading, so a link is right on both or on neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(rf"({FENCE.pattern}|(?<!`)`(?:[^`\n]|\n(?!\n))+`(?!`))", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_TARGET = re.compile(r"(?<=\]\()[^)\s]+(?=\))")


def targets_of(text: str) -> list[str]:
    """What a page links to or shows as a picture, as it is written, in order."""
    return [target for prose in _CODE.split(text)[::2] for target in _TARGET.findall(prose)]


def with_targets(text: str, changed: Callable[[str], str]) -> str:
    """The page with each of its targets changed."""
    parts = _CODE.split(text)
    parts[::2] = [_TARGET.sub(lambda found: changed(found[0]), prose) for prose in parts[::2]]
    return "".join(parts)


def is_elsewhere(target: str) -> bool:
    """Does it lead out of the repository?"""
    return re.match(r"[a-z][a-z+.-]*:", target) is not None


class Anchors:
    """The anchors of one page: called with each heading's text in order, it gives the anchor."""

    def __init__(self) -> None:
        """A page without headings."""
        self._seen: dict[str, int] = {}

    def __call__(self, heading: str) -> str:
        """The anchor of the next heading."""
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
        name = anchor
        while name in self._seen:
            self._seen[anchor] += 1
            name = f"{anchor}-{self._seen[anchor]}"
        self._seen[name] = 0
        return name


def anchors_of(text: str) -> dict[str, str]:
    """By anchor, the heading as it is written, in order."""
    anchor = Anchors()
    return {anchor(heading): heading for heading in _HEADING.findall(FENCE.sub("", text))}
