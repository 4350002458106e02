"""The words of the glossary: each is defined once and is used; words that were replaced are gone."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from importlib import import_module
from operator import attrgetter

import pytest

from tests.tidy.repo import ROOT, Source, python_of, repository

PAGE = ROOT / "docs/glossary.md"
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| `([\w.]+)` \|$", re.MULTILINE)
WORDS = [(word.strip(), home) for word, _, home in ROW.findall(PAGE.read_text(encoding="utf-8"))]
FILES = repository()
PRODUCT = python_of(FILES, "sparkbolt")
PAGES = [s for s in FILES if s.path.startswith("docs/") and s.path.endswith(".md") and s.path != "docs/glossary.md"]
USED_IN = 2
"""In so many files, at least, a word of the glossary stands."""

# What these stood for has a word of the field now. "host" and "source" have their usual meanings and stay.
GONE = {
    "announcer": "error log",
    "asker": "RPC client",
    "births": "edge origins",
    "deed": "activity",
    "desk": "spout buffer",
    "eyes": "observer",
    "fate": "outcome",
    "fates": "outcome",
    "histories": "attempts",
    "hosted": "with a runtime",
    "materials": "worker environment",
    "pacer": "rate",
    "pacing": "rate",
    "parcel": "routed rows",
    "shipment": "job bundle",
    "spouthost": "coordinator",
    "twin": "other process",
    "twins": "other process",
    "witness": "observer",
}
KEPT = {
    ("sparkbolt/driver/ledger/log.py", "histories"): "the name of a field in logs that exist",
}


def words_of(text: str) -> str:
    """A text with the words of its identifiers apart: ``SpoutBuffer`` and ``spout_buffer`` are a spout buffer."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ").lower()


TEXTS = [words_of(source.text) for source in (*PAGES, *PRODUCT)]


def test_the_glossary_is_in_order_and_defines_each_word_once() -> None:
    words = [word for word, _ in WORDS]
    assert words
    assert words == sorted(words, key=lambda word: word.replace("_", " "))
    assert len(set(words)) == len(words)
    assert PAGE.read_text(encoding="utf-8").count("\n| ") == len(words) + 2, "a row is not of the form of the others"


@pytest.mark.parametrize(("word", "home"), WORDS)
def test_a_word_has_a_home_and_is_used(word: str, home: str) -> None:
    parts = home.split(".")
    for cut in range(len(parts), 1, -1):
        try:
            module = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        if parts[cut:]:
            attrgetter(".".join(parts[cut:]))(module)
        break
    else:
        raise AssertionError(f"{home} is not there")
    plain = re.compile(rf"\b{re.escape(re.sub(r' [(].*', '', word)).replace('_', ' ')}s?\b")
    assert sum(bool(plain.search(text)) for text in TEXTS) >= USED_IN, f"nobody uses {word!r}"


def classes_of(sources: list[Source]) -> dict[str, list[str]]:
    """The modules that define each class; private ones and functions' own are left out."""
    found: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(source.path)
    return found


def test_no_two_classes_have_one_name() -> None:
    several = {name: paths for name, paths in classes_of(PRODUCT).items() if len(paths) > 1}
    assert not several, several


def old_words(source: Source) -> list[str]:
    """The old words in a file, in identifiers too: ``spout_desk``, ``Desk``, ``desks``."""
    text = words_of(source.text)
    return [
        f"{source.path}: {word!r} is {instead!r} now"
        for word, instead in GONE.items()
        if (source.path, word) not in KEPT and re.search(rf"\b{word}s?\b", text)
    ]


def test_the_old_words_are_gone() -> None:
    found = [line for source in (*PRODUCT, *PAGES) for line in old_words(source)]
    assert not found, "\n".join(found)


def test_an_old_word_is_found_in_prose_and_in_names() -> None:
    assert old_words(Source("docs/page.md", "It waits on the desk."))
    assert old_words(Source("sparkbolt/a.py", "class SpoutDesk: ..."))
    assert old_words(Source("sparkbolt/a.py", "hosted_tasks = 1"))
    assert not old_words(Source("sparkbolt/a.py", "class DesktopIcon: ..."))
