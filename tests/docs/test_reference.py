"""The pages of the API reference are what the docstrings say now, and name everything that is public."""

from __future__ import annotations

import re

import pytest

from docs.reference import PAGES, exported, markdown_of, pages
from tests.docs.pages import pages as all_pages
from tests.docs.pages import text_of


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return pages()


def test_reference_pages_are_up_to_date_and_there_are_no_others(texts: dict[str, str]) -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in PAGES.iterdir()}
    assert kept.keys() == texts.keys(), "run python -m docs.reference"
    stale = [name for name, text in texts.items() if kept[name] != text]
    assert not stale, f"{stale} are out of date: run python -m docs.reference"


def test_every_public_name_has_an_entry_and_no_entry_is_empty(texts: dict[str, str]) -> None:
    for page, names in exported().items():
        text = texts[f"{page}.md"]
        for name in names:
            entry = text.split(f"\n### {name}\n", 1)[1].split("\n### ", 1)[0]
            said = re.sub(r"```.*?```|^#### .*$", "", entry, flags=re.MULTILINE | re.DOTALL)
            assert said.strip(), f"{page}: {name} has no docstring"


def test_a_docstring_becomes_lists_and_blocks() -> None:
    text = markdown_of(
        """What it does with ``x``.

        Args:
            x: a number
                on two lines.

        Returns:
            Another
            number.

        >>> 1 + 1
        2
        """
    )
    assert text == (
        "What it does with `x`.\n\nArgs:\n\n- `x`: a number on two lines.\n\nReturns: Another number.\n\n"
        "```python\n>>> 1 + 1\n2\n```"
    )


def test_read_on_in_the_readme_links_each_page_once() -> None:
    links = re.findall(r"\]\(([^)#]+\.md)[^)]*\)", text_of("README.md").split("## Read on", 1)[1])
    wanted = [page for page in all_pages() if page != "README.md"] + ["docs/api/sparkbolt.md"]
    assert {page: links.count(page) for page in wanted} == dict.fromkeys(wanted, 1)
