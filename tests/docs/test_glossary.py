"""The words of the glossary: each is defined once and is used; words that were replaced are gone."""

from __future__ import annotations

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
CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
USED_IN = 2
"""In so many files, at least, a word of the glossary stands."""


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
def test_a_glossary_word_is_defined_in_the_code_and_is_used(word: str, home: str) -> None:
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
        for name in CLASS.findall(source.text):
            found[name].append(source.path)
    return found


def test_no_two_classes_have_one_name() -> None:
    several = {name: paths for name, paths in classes_of(PRODUCT).items() if len(paths) > 1}
    assert not several, several
