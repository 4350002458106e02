"""Trace context: the ``traceparent`` of messages, for the traces of their trees.

The header is that of W3C Trace Context (https://www.w3.org/TR/trace-context/): version, trace id, span id, flags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

TRACEPARENT = "traceparent"
"""The name of the header; senders may write it in any case."""
_HEADER = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class TracedSource:
    """The hooks of a spout for traces; each has a default, so a spout need not define them."""

    def trace_parents(self, positions: Sequence[int]) -> Mapping[int, str]:
        """Executor: return the ``traceparent`` of each of these records that came with one.

        Called after ``read_columns`` (or ``read``) has yielded the records, before it yields others, for those whose
        trees are followed: traced, or retried. Only a ``PartitionedSpout`` gets this call.

        Args:
            positions: positions of the records that were yielded last, ascending.
        """
        return {}

    def trace_attributes(self, source: str | None, position: int | None) -> Mapping[str, str | int]:
        """Driver: return attributes with the origin of a message, as OpenTelemetry names them.

        Args:
            source: the record's source; None if the message cannot be read again.
            position: the record's position in it.
        """
        return {}


def traceparent_of(headers: Iterable[tuple[str, bytes | str | None]]) -> str | None:
    """Return the ``traceparent`` among a message's headers; None if there is none, or it is not valid.

    A later version of the header may have more parts, which are dropped, as the specification says.

    >>> traceparent_of([("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")])
    '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    >>> traceparent_of([("traceparent", b"00-00000000000000000000000000000000-b7ad6b7169203331-01")])
    """
    for name, value in headers:
        if name.lower() == TRACEPARENT and value is not None:
            text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
            match = _HEADER.match(text)
            if match is None:
                return None
            rest = text[match.end() :]
            is_later = not text.startswith("00") and rest.startswith("-")
            return match[0] if not rest or is_later else None
    return None
