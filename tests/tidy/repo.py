"""The files of the repository, as the tests of its tidiness read them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Source:
    """A text file, by its path from the root of the repository."""

    path: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def module(self) -> str:
        """The dotted name of a Python file: ``sparkbolt/base/__init__.py`` is ``sparkbolt.base``."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def at(self, line: int, problem: str) -> str:
        """A problem with its place."""
        return f"{self.path}:{line}: {problem}"


def load(root: Path, paths: Iterable[str]) -> list[Source]:
    """Read the files that are text; pictures and other binary files are left out."""
    sources = []
    for path in paths:
        data = (root / path).read_bytes()
        if b"\0" not in data[:8192]:
            sources.append(Source(path, data.decode("utf-8")))
    return sources


def paths_of(root: Path) -> list[str]:
    """All files that Git tracks or would track, so that a rule is checked before the commit."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return sorted({path for path in listing.split("\0") if path and (root / path).is_file()})


@cache
def repository() -> tuple[Source, ...]:
    """All text files: read once in a process, and each parsed at most once."""
    return tuple(load(ROOT, paths_of(ROOT)))


def python_of(sources: Iterable[Source], *folders: str) -> list[Source]:
    """The Python files, of the given top folders or of all."""
    return [s for s in sources if s.path.endswith(".py") and (not folders or s.path.split("/")[0] in folders)]
