"""Pages of documentation and their fenced blocks: what is in them, and how they are run.

A fence's first words say what becomes of its block:

    python            runs; all such blocks of a page share one namespace, in order
    python spark      runs where there is a Spark session
    python file=NAME  is written to NAME in the page's directory; with ``spark`` it is run as a program, too
    text output       is what the block before it printed; ``...`` stands for anything
    console           lines after ``$ `` run in a shell, with the page's directory as the working directory; the
                      other lines are what they print, by the same rule; ``spark`` as above. ``sparkbolt run`` runs in
                      this process, with the session of all tests, unless it has ``--detach``
    sh                is not run: what installs something, and what runs for ever
    java              is not run: programs of Storm
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import linecache
import os
import re
import shlex
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkbolt.faces.cli import main

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RULES = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
RUN_HERE = re.compile(r"sparkbolt (run (?:(?!--detach).)*?)(?: \d?>.*| \|\|.*)?\n?")
"""A command that runs a topology and waits for its end: its arguments, before what the shell does with its output."""
PROGRAM = re.compile(r"--detach|\bsubprocess\b")
"""How a block starts a program that has a JVM of its own."""
COMMAND_SECS_MAX = 600
LANGUAGES = frozenset({"python", "text", "console", "sh", "mermaid", "json", "java"})


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    """Of its first line of content, from 1."""
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def needs_spark(self) -> bool:
        return "spark" in self.words

    @property
    def starts_programs(self) -> bool:
        return self.needs_spark and PROGRAM.search(self.text) is not None

    @property
    def file(self) -> str | None:
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), None)

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """The pages, as paths below the repository's root."""
    return ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")), *examples()]


def examples() -> list[str]:
    """The pages of examples that are a folder: they run in a copy of it."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "examples").glob("*/README.md"))


def site_pages() -> list[str]:
    """The pages of the site: those, what else it has of the root, and the reference."""
    reference = sorted(f"docs/api/{path.name}" for path in (ROOT / "docs" / "api").glob("*.md"))
    own = [page for page in pages() if page not in examples()]
    return [*own, "CONTRIBUTING.md", "CHANGELOG.md", *reference]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str, text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start(3)) + 1
        found.append(Block(page, line, match[1], tuple(match[2].split()), match[3]))
    return found


def recipe(page: str, file: str) -> dict[str, Any]:
    """The names that a block of a page defines, which the page would write to ``file``."""
    [block] = [block for block in blocks_of(page, text_of(page)) if block.file == file]
    names: dict[str, Any] = {"__name__": file.removesuffix(".py")}
    exec(compile(block.text, block.place, "exec"), names)
    return names


class Runner:
    """Runs the blocks of one page in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._main = types.ModuleType("__main__")
        self._printed = ""

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The directory is the working directory and the first place for modules; both are given back."""
        before, path = os.getcwd(), os.environ.get("PYTHONPATH")
        home = os.environ.get("SPARKBOLT_HOME")
        os.chdir(self._directory)
        os.environ["SPARKBOLT_HOME"] = str(self._directory / ".home")
        os.environ["PYTHONPATH"] = str(ROOT)  # for programs that a page starts
        sys.path.insert(0, str(self._directory))
        try:
            with self._modules_dropped():
                yield
        finally:
            os.chdir(before)
            end_topologies(self._directory / ".home")
            os.environ.pop("SPARKBOLT_HOME")
            if home is not None:
                os.environ["SPARKBOLT_HOME"] = home
            os.environ.pop("PYTHONPATH")
            if path is not None:
                os.environ["PYTHONPATH"] = path
            sys.path.remove(str(self._directory))

    @contextlib.contextmanager
    def _modules_dropped(self) -> Iterator[None]:
        """The page's modules that are imported within are imported anew afterwards."""
        before = set(sys.modules)
        try:
            yield
        finally:
            for name in set(sys.modules) - before:
                if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(self._directory)):
                    del sys.modules[name]

    def run(self, block: Block, spark: bool = True) -> None:
        """Run a block, or compare it with what the one before it printed; a file is written in any case."""
        if block.file is not None:
            compile(block.text, block.place, "exec")
            (self._directory / block.file).write_text(block.text, encoding="utf-8")
            if not block.needs_spark:
                return
        if block.needs_spark and not spark:
            return
        if block.language == "text" and "output" in block.words:
            expect(block.text, self._printed, block.place)
        elif block.language == "console":
            self._console(block)
        elif block.language == "python":
            program = block.file is not None
            self._printed = self._python(block, types.ModuleType("__main__") if program else self._main)

    def _python(self, block: Block, main: types.ModuleType) -> str:
        name = f"<{block.place}>"
        # What defines a class must be found under its name, as in a program or a notebook; and tracebacks and
        # `inspect` want the source.
        linecache.cache[name] = (len(block.text), None, block.text.splitlines(keepends=True), name)
        real, out = sys.modules["__main__"], io.StringIO()
        sys.modules["__main__"] = main
        try:
            with contextlib.redirect_stdout(out):
                exec(compile(block.text, name, "exec"), vars(main))
        finally:
            sys.modules["__main__"] = real
        return out.getvalue()

    def _console(self, block: Block) -> None:
        for command, expected in commands_of(block.text):
            python = shlex.quote(sys.executable)
            run = RUN_HERE.fullmatch(command)
            sparkbolt = f'{python} -m sparkbolt "$@"' if run is None else self._run_here(run[1])
            names = f'sparkbolt() {{ {sparkbolt}; }}; python() {{ {python} "$@"; }}; '
            done = subprocess.run(
                ["bash", "-c", names + command],
                cwd=self._directory,
                env={**os.environ, "COLUMNS": "100", "PYTHONWARNINGS": "ignore"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMAND_SECS_MAX,
                check=False,
            )
            assert done.returncode == 0, f"{block.place}: `{command}` ended with {done.returncode}:\n{done.stdout}"
            if expected.strip():
                expect(expected, done.stdout, block.place)

    def _run_here(self, arguments: str) -> str:
        """Run ``sparkbolt`` in this process; returns a shell command that prints the same, with the same exit code."""
        out, err = io.StringIO(), io.StringIO()
        with self._modules_dropped(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(shlex.split(arguments))
        said = [shlex.quote(stream.getvalue()) for stream in (out, err)]
        return f"printf %s {said[0]}; printf %s {said[1]} >&2; return {code}"


def end_topologies(home: Path) -> None:
    """End what a page has started and not ended, as when one of its commands has failed."""
    for file in home.glob("topologies/*.json"):
        entry = json.loads(file.read_text(encoding="utf-8"))
        if entry.get("control") and entry["pid"] != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(entry["pid"], signal.SIGKILL)


def commands_of(text: str) -> Iterator[tuple[str, str]]:
    """(command, what it prints) of a console block."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def expect(expected: str, got: str, place: str) -> None:
    """Fail unless ``got`` is what is expected, where ``...`` stands for anything."""
    assert doctest.OutputChecker().check_output(expected, got, RULES), (
        f"{place}: the page says\n{expected}\nbut it printed\n{got}"
    )
