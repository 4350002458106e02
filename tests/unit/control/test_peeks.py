"""Peeks: for how long tuples of a running topology are seen, and which of them are kept."""

from __future__ import annotations

from sparkbolt.control.peeks import KEPT_MAX, PEEK_SECS, PEEKS_MAX, Peeks
from sparkbolt.wire.peek import Peek, PeekedTuple


def seen(peek: Peek, text: str) -> PeekedTuple:
    return PeekedTuple(peek, 1, 0, peek.component, 0, "default", "", text)


def test_tuples_have_serial_numbers_so_that_none_is_shown_twice() -> None:
    peeks, peek = Peeks(), Peek("split")
    assert peeks.ask(peek, 0, 0.0) == []
    peeks.add([seen(peek, "a"), seen(peek, "b"), seen(Peek("other"), "c")])
    first = peeks.ask(peek, 0, 1.0)
    assert [one.values for _, one in first] == ["a", "b"]
    assert peeks.ask(peek, first[0][0], 1.0) == first[1:]
    peeks.add(seen(peek, str(number)) for number in range(2 * KEPT_MAX))
    assert len(peeks.ask(peek, 0, 1.0)) == KEPT_MAX


def test_a_peek_ends_when_nobody_asks_any_more_and_there_are_only_a_few_at_a_time() -> None:
    peeks = Peeks()
    many = [Peek(f"bolt{number}") for number in range(PEEKS_MAX + 1)]
    for peek in many:
        peeks.ask(peek, 0, 0.0)
    assert peeks.wanted(1.0) == tuple(many[1:])
    peeks.ask(many[1], 0, PEEK_SECS - 1)
    assert peeks.wanted(PEEK_SECS) == (many[1],)
    peeks.add([seen(many[2], "nobody wants it")])
    assert peeks.ask(many[2], 0, PEEK_SECS) == []
