"""Overrides: the settings of a topology that can be changed while it runs.

``Config`` never changes. The coordinator has the overrides beside it, and passes them to the next life.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparkbolt.api.retry import Policies
from sparkbolt.api.story import short
from sparkbolt.base.source_names import is_named
from sparkbolt.wire.plan import Entry


@dataclass(frozen=True)
class TraceWish:
    """A message whose hops are to be recorded."""

    message: str
    """A message id as it is printed, or ``source@position``; the end of the source's path is enough."""
    component: str | None = None
    """Only messages of this spout; None: of any."""

    def positions(self, source: str) -> tuple[int, ...]:
        """The position that it names in a source; none if it names another source.

        >>> TraceWish("a.txt@40").positions("/books/a.txt"), TraceWish("a.txt@40").positions("/books/aa.txt")
        ((40,), ())
        >>> TraceWish("orders/3@17").positions("orders/3"), TraceWish("'17'").positions("orders/3")
        ((17,), ())
        """
        place, at, position = self.message.rpartition("@")
        if not at or not (position.isascii() and position.isdigit()):
            return ()
        return (int(position),) if is_named(source, place) else ()

    def is_id(self, message_id: Any) -> bool:
        """Whether it names a message by its id, with or without the quotes of a text.

        >>> TraceWish("17").is_id("17"), TraceWish("'17'").is_id("17"), TraceWish("17").is_id(17)
        (True, True, True)
        """
        return self.message == message_id or self.message == short(message_id)


@dataclass(frozen=True)
class Overrides:
    """The values that replace settings in ``Config``; a missing one leaves the setting unchanged."""

    max_spout_pending: Mapping[str, int | None] = field(default_factory=dict)
    """By component; None: there is no limit."""
    micro_batch_target_ms: int | None = None
    message_timeout_secs: float | None = None
    max_attempts: Mapping[str, int] = field(default_factory=dict)
    """By component: how often a message is tried in all; the waits between are those of its retry policy."""
    traces: tuple[TraceWish, ...] = ()

    def policies(self, own: Policies) -> Policies:
        """The retry policies that apply: those of the topology, with the changed numbers of attempts."""
        most = self.max_attempts
        return {
            name: replace(policy, max_retries=most[name] - 1) if policy is not None and name in most else policy
            for name, policy in own.items()
        }


def traced_sequences(
    wishes: Iterable[TraceWish], component: str, entry: Entry, message_ids: Sequence[Any]
) -> tuple[int, ...]:
    """The sequences of an entry whose trees are to be traced, ascending.

    Args:
        wishes: the messages to trace.
        component: the spout of the entry.
        entry: an entry of a plan.
        message_ids: for records of a ``Spout``: the id of each; otherwise empty.
    """
    own = [wish for wish in wishes if wish.component in (None, component)]
    if not own or entry.letters is not None:
        return ()
    if entry.source is None:
        chosen = (place for place, id_ in enumerate(message_ids) if any(wish.is_id(id_) for wish in own))
        return tuple(entry.base + place for place in chosen)
    positions = {position for wish in own for position in wish.positions(entry.source)}
    if entry.positions is not None:
        return tuple(entry.base + place for place, one in enumerate(entry.positions) if one in positions)
    return tuple(sorted(entry.base + one - entry.start for one in positions if entry.start <= one < entry.end))
