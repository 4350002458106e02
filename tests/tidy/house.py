"""The rooms, and which imports which.

``scripts/house`` draws them into ``docs/architecture.md``, between two marks, and prints how much code there is. The
page shows no number that changes with every commit.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.tidy.layers import LAYERS, imports_of, room_of
from tests.tidy.repo import ROOT, Source, python_of, repository

PAGE = "docs/architecture.md"
BEGIN, END = "<!-- the rooms, as scripts/house draws them -->", "<!-- end of the rooms -->"
SHARE_MAX = 0.15
"""How much of all lines one room may have."""
LONG_LINES = 500
"""The figures name files with more lines."""
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True)
class House:
    """The rooms from the ground up, with the lines of each, and the arrows between them."""

    rooms: dict[str, int]
    """Lines of each room."""
    arrows: Counter[tuple[str, str]]
    """How many modules of the first room import how many of the second."""

    @property
    def lines(self) -> int:
        """All lines."""
        return sum(self.rooms.values())

    def shares(self) -> dict[str, float]:
        """How much of all lines each room has."""
        return {room: lines / self.lines for room, lines in self.rooms.items()}

    def upward(self) -> list[tuple[str, str]]:
        """Arrows from a room to one that does not stand below it: with none of them there is no circle either."""
        floor = {room: number for number, room in enumerate(self.rooms)}
        return [(a, b) for a, b in self.arrows if floor[b] >= floor[a]]


def house_of(package: Sequence[Source]) -> House:
    """The house of a package; imports for types, in functions and by name count as any other."""
    modules = frozenset(source.module for source in package)
    lines: Counter[str] = Counter()
    arrows: Counter[tuple[str, str]] = Counter()
    for source in package:
        room = room_of(source.module)
        lines[room] += source.text.count("\n")
        used = {f"{one.module}.{one.name}" if one.name else one.module: one.module for one in imports_of(source)}
        targets = {whole if whole in modules else module for whole, module in used.items()} & modules
        arrows.update((room, room_of(target)) for target in targets if room_of(target) != room)
    return House({room: lines[room] for room in LAYERS if lines[room]}, arrows)


def drawn(house: House) -> str:
    """The house as a table, the roof first."""
    rows = ["| room | imports |", "| --- | --- |"]
    for room in reversed(house.rooms):
        below = [to for (of, to) in sorted(house.arrows) if of == room and to != "errors"]
        rows.append(f"| `{room}` | {', '.join(below) or 'nothing'} |")
    return "\n".join([BEGIN, "", *rows, "", "Every room may import `errors`.", "", END])


def page_with(text: str, drawing: str) -> str:
    """The page with the drawing between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + drawing + after


def code_lines(source: Source) -> int:
    """The lines of a file without docstrings, comments, blank lines and imports."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(source.tree):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if text or isinstance(node, ast.Import | ast.ImportFrom):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def group_of(source: Source) -> str:
    """The room of a module of the package, the folder of a test."""
    if source.path.startswith("sparkbolt/"):
        return f"sparkbolt {room_of(source.module)}"
    return "/".join(source.path.split("/")[:-1][:2])


def figures(sources: Sequence[Source]) -> Iterator[str]:
    """Modules and lines of code by room and by folder of tests, and the long files."""
    modules: dict[str, list[int]] = defaultdict(list)
    for source in sources:
        for group in (source.path.split("/")[0], group_of(source)):
            modules[group].append(code_lines(source))
    yield f"{'':28}{'modules':>8}{'lines of code':>15}"
    for group, lines in sorted(modules.items()):
        yield f"{group:28}{len(lines):8}{sum(lines):15}"
    yield "without docstrings, comments, blank lines and imports"
    long = [(source.text.count("\n"), source.path) for source in sources if source.text.count("\n") > LONG_LINES]
    yield f"{len(long)} files have more than {LONG_LINES} lines:"
    yield from (f"{lines:7} {path}" for lines, path in sorted(long, reverse=True))


def main() -> None:
    """Write the drawing into the page, and print the figures."""
    sources = python_of(repository(), "sparkbolt", "tests")
    path = ROOT / PAGE
    path.write_text(page_with(path.read_text(), drawn(house_of(python_of(sources, "sparkbolt")))))
    print(f"{PAGE} is drawn", "", *figures(sources), sep="\n")


if __name__ == "__main__":
    main()
