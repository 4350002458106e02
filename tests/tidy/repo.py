"""What is in the repository, and what a broken rule looks like: the ground under all tidiness rules."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Violation:
    """A broken rule at one line; ``mend`` tells what to do about it."""

    path: str
    line: int
    what: str
    mend: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}\n    {self.mend}"


@dataclass(frozen=True)
class Source:
    """A text file, by its path from the root of the repository."""

    path: str
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def module(self) -> str:
        """The dotted name of a Python file: ``sparkbolt/core/__init__.py`` is ``sparkbolt.core``."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def violation(self, line: int, what: str, mend: str) -> Violation:
        return Violation(self.path, line, what, mend)


def load(root: Path, paths: Iterable[str]) -> list[Source]:
    """Read the files that are text; pictures and other binary files are left out."""
    sources = []
    for path in paths:
        data = (root / path).read_bytes()
        if b"\0" not in data[:8192]:
            sources.append(Source(path, data.decode("utf-8")))
    return sources


def paths_of(root: Path) -> list[str]:
    """All files that git tracks or would track, so that a rule speaks up before the commit."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return sorted({path for path in listing.split("\0") if path and (root / path).is_file()})


def repository() -> list[Source]:
    return load(ROOT, paths_of(ROOT))


def python_of(sources: Iterable[Source], *folders: str) -> list[Source]:
    """The Python files, of the given top folders or of all."""
    return [s for s in sources if s.path.endswith(".py") and (not folders or s.path.split("/")[0] in folders)]


def report(violations: Iterable[Violation]) -> str:
    """One text for all violations, empty if there is none."""
    return "\n".join(str(violation) for violation in violations)
