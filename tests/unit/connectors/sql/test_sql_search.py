"""The search for rows that a database refuses: whose fault it is follows from what the database takes after them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import sqlalchemy as sa

from sparkbolt.connectors.sql.sql_search import SUSPECTS_MAX, find_refused


class RefusalError(Exception):
    """What a driver raises."""

    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate


def error(state: str, lost: bool = False) -> Exception:
    return sa.exc.DBAPIError("INSERT", {}, RefusalError(state), connection_invalidated=lost)


def refused(
    parts: Sequence[Sequence[int]],
    state_of: Callable[[int], str | None],
    *,
    sample: bool | None = None,
    probe: bool = True,
) -> list[int]:
    """Which numbers are refused if the database answers each one with a state, or takes it."""
    found: list[int] = []

    def attempt(part: Sequence[int]) -> Exception | None:
        return next((error(state) for one in part if (state := state_of(one))), None)

    find_refused(parts, attempt, lambda one, _: found.append(one), sample=lambda: sample, probe=lambda _: probe)
    return found


def test_rows_are_at_fault_if_a_later_one_is_accepted() -> None:
    assert refused([range(100), range(100, 200)], lambda n: "XX000" if n in (0, 7, 99) else None) == [0, 7, 99]
    assert refused([range(4)], lambda n: "23505" if n > 1 else None) == [2, 3]


def test_a_database_that_fills_up_in_between_is_away() -> None:
    with pytest.raises(sa.exc.DBAPIError):
        refused([range(100)], lambda n: "53100" if n > 50 else None)


@pytest.mark.parametrize(("sample", "rows"), [(True, [98, 99]), (False, None), (None, None)])
def test_rows_followed_by_no_accepted_row_are_at_fault_if_the_sample_is_accepted(
    sample: bool | None, rows: list[int] | None
) -> None:
    def search() -> list[int]:
        return refused([range(100)], lambda n: "53100" if n > 97 else None, sample=sample)

    if rows is not None:
        assert search() == rows
        return
    with pytest.raises(sa.exc.DBAPIError):
        search()


def test_search_ends_when_no_row_is_accepted_and_at_once_when_the_connection_is_lost() -> None:
    asked: list[int] = []

    def attempt(lost: bool) -> Callable[[Sequence[int]], Exception | None]:
        def attempted(part: Sequence[int]) -> Exception | None:
            asked.append(len(part))
            return error("57014", lost)

        return attempted

    for lost, attempts in ((True, 1), (False, 3 * SUSPECTS_MAX)):
        asked.clear()
        with pytest.raises(sa.exc.DBAPIError):
            find_refused([range(1000)], attempt(lost), print, sample=lambda: None, probe=lambda _: True)
        assert len(asked) <= attempts
