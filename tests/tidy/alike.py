"""Places in the product that share lines: what is written twice is written once, or says why not.

Lines count as shared if they are equal to the letter. Declarations (fields of dataclasses, constants, arguments by
name, imports) often have one shape and share nothing; logic of one shape is what a reviewer looks for.
A place says it with a comment, ``# alike: ...``, within its lines or right above them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations

from tests.tidy.repo import Source, Violation

LINES_MIN = 6
PLACES_MAX = 8
"""A run that stands in more places is a form of the language, such as the fields of a protocol."""
REASON = "# alike:"
ABOVE = 6
"""So many lines above a run its reason may stand."""


def _prose(source: Source) -> set[int]:
    """The numbers of the lines that are docstrings, imports or the doc of an attribute."""
    found: set[int] = set()
    for node in ast.walk(source.tree):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if text or isinstance(node, ast.Import | ast.ImportFrom):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def _code(source: Source) -> list[tuple[int, str]]:
    """(line number, line) of what counts, without white space."""
    prose = _prose(source)
    lines = (
        (number, "".join(line.split())) for number, line in enumerate(source.lines, start=1) if number not in prose
    )
    return [(number, line) for number, line in lines if any(map(str.isalnum, line)) and not line.startswith("#")]


def _has_reason(source: Source, first: int, last: int) -> bool:
    return any(REASON in line for line in source.lines[max(0, first - 1 - ABOVE) : last])


def shared_lines(sources: Iterable[Source]) -> Iterator[Violation]:
    """Pairs of places that share ``LINES_MIN`` lines, neither of which says why."""
    places: dict[tuple[str, ...], list[tuple[Source, int, int]]] = defaultdict(list)
    for source in sources:
        code = _code(source)
        for at in range(len(code) - LINES_MIN + 1):
            run = code[at : at + LINES_MIN]
            places[tuple(line for _, line in run)].append((source, run[0][0], run[-1][0]))
    seen: set[tuple[str, int]] = set()
    for found in places.values():
        if len(found) > PLACES_MAX:
            continue
        for one, other in combinations(found, 2):
            if (one[0].path, one[1] - 1) in seen:  # it goes on
                seen.add((one[0].path, one[1]))
                continue
            if not (_has_reason(*one) or _has_reason(*other)):
                seen.add((one[0].path, one[1]))
                yield one[0].violation(
                    one[1],
                    f"shares {LINES_MIN} lines or more with {other[0].path}:{other[1]}",
                    f"write them once, or say why not: {REASON} ...",
                )
