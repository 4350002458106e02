"""What the product says twice has a reason."""

from __future__ import annotations

from tests.tidy.alike import shared_lines
from tests.tidy.repo import Source, python_of, report, repository

TWICE = """
def first(given):
    total = 0
    for value in given:
        if value > 3:
            total += value
        else:
            total -= 1
    return total
"""


def test_no_two_places_of_the_product_share_six_lines_without_a_reason() -> None:
    problems = report(shared_lines(python_of(repository(), "sparkbolt")))
    assert not problems, problems


def test_what_is_written_twice_is_found_and_a_reason_excuses_it() -> None:
    one = Source("sparkbolt/one.py", TWICE)
    other = Source("sparkbolt/other.py", f'"""Its head."""\n\nimport os\n{TWICE.replace("def first", "def second")}')
    (found,) = shared_lines([one, other])
    assert (found.path, found.line) == ("sparkbolt/one.py", 3)
    said = TWICE.replace("    total = 0", "    # alike: ``one``, since it is only an example.\n    total = 0")
    assert not list(shared_lines([one, Source("sparkbolt/said.py", said)]))
    assert not list(shared_lines([one]))


def test_docstrings_and_imports_do_not_count() -> None:
    text = '"""A head\nof\nsix\nlines\nor\nmore.\n"""\n\nimport a\nimport b\nimport c\nimport d\nimport e\nimport f\n'
    assert not list(shared_lines([Source("sparkbolt/a.py", text), Source("sparkbolt/b.py", text)]))
