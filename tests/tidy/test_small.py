"""A module is apart for a reason."""

from __future__ import annotations

from tests.tidy.repo import Source, python_of, report, repository
from tests.tidy.small import check_small_modules


def test_small_modules_with_one_user_say_why_they_are_apart() -> None:
    problems = report(check_small_modules(python_of(repository(), "sparkbolt")))
    assert not problems, problems


def test_a_small_module_without_a_reason_is_found() -> None:
    user = Source("sparkbolt/cli/one.py", "from sparkbolt.cli.small import thing\n")
    (found,) = check_small_modules([user, Source("sparkbolt/cli/small.py", '"""Small."""\nthing = 1\n')])
    assert found.path == "sparkbolt/cli/small.py"
    said = '"""Small.\n\nIt is apart from ``one``, its only user, because it is an example.\n"""\nthing = 1\n'
    assert not list(check_small_modules([user, Source("sparkbolt/cli/small.py", said)]))
