"""Spans: the story of a tree as a trace.

Ids follow from the topology's name, the root, the attempt and the time of the tree's first micro-batch, so the same
tree is the same trace, however often it is exported. Attributes have the names of OpenTelemetry's semantic conventions
``SCHEMA``; all others begin with ``sparkbolt.``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sparkbolt.api.causes import Cause
from sparkbolt.api.story import Hop, Story
from sparkbolt.api.tree_life import TreeState

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the semantic conventions whose names are used."""
Attributes: TypeAlias = dict[str, str | int | bool]
_NS_PER_MS = 1_000_000
_BY = re.compile(r"by .*?\[\d+\] in micro-batch \d+: ")
"""The text before the reason in the story of a failed tree."""


@dataclass(frozen=True)
class SpanContext:
    """The identity of a span for its children and for links."""

    trace_id: int
    """128 bits, not 0."""
    span_id: int
    """64 bits, not 0."""
    is_remote: bool = False
    """Whether another program made the span."""
    is_sampled: bool = True


@dataclass(frozen=True)
class Span:
    """One span of a trace."""

    name: str
    context: SpanContext
    parent: SpanContext | None
    start_ns: int
    """Nanoseconds since the epoch."""
    end_ns: int
    attributes: Attributes
    is_consumer: bool = False
    """Whether it processes a message of a queue or log (kind ``CONSUMER``)."""
    error: str | None = None
    """Why it failed; None if it did not."""
    exception: Attributes = field(default_factory=dict)
    """The attributes of the event ``exception``; empty if there is none."""
    links: tuple[SpanContext, ...] = ()


def context_of(topology: str, story: Story) -> SpanContext:
    """Return the context of a tree's own span.

    >>> story = Story(1 << 48, "lines", 0, TreeState.ACKED, attempt=1, started_ms=1_000)
    >>> context_of("words", story) == context_of("words", story)
    True
    >>> context_of("words", story) == context_of("other", story)
    False
    """
    seed = _seed(topology, story)
    parent = _remote(story.trace_parent)
    trace_id = parent.trace_id if parent is not None else _number(seed, b"trace", 16)
    return SpanContext(trace_id, _number(seed, b"tree", 8))


def spans_of(
    topology: str,
    story: Story,
    *,
    durations_ms: Mapping[int, float] | None = None,
    attributes: Mapping[str, str | int] | None = None,
    links: Sequence[SpanContext] = (),
    values: bool = False,
) -> list[Span]:
    """Return the trace of a tree that has ended: the span of the tree first, then one for each hop, in their order.

    Args:
        topology: the topology's name.
        story: the story of the tree.
        durations_ms: how long micro-batches took, as far as known: by their numbers, in milliseconds.
        attributes: the origin of the message (``trace_attributes`` of its spout).
        links: the contexts of earlier attempts at the message.
        values: whether to export the values of tuples.
    """
    known = durations_ms or {}
    began_ms = _began_ms(story)
    ended_ms = max(began_ms, story.ended_ms if story.ended_ms is not None else began_ms)
    own = context_of(topology, story)
    tree = Span(
        name=story.component,
        context=own,
        parent=_remote(story.trace_parent),
        start_ns=began_ms * _NS_PER_MS,
        end_ns=_end_ns(ended_ms, story.ended_in, known),
        attributes=_tree_attributes(topology, story, attributes or {}),
        is_consumer=bool(attributes),
        error=story.why or "failed" if story.state == TreeState.FAILED else None,
        exception=_exception(story),
        links=tuple(links),
    )
    return [tree, *_hop_spans(_seed(topology, story), tree, story, known, values)]


def _began_ms(story: Story) -> int:
    times = [story.started_ms, *(hop.now_ms for hop in story.hops), story.ended_ms]
    return min((time for time in times if time is not None), default=0)


def _end_ns(now_ms: int, micro_batch_id: int | None, durations_ms: Mapping[int, float]) -> int:
    took_ms = durations_ms.get(micro_batch_id, 0.0) if micro_batch_id is not None else 0.0
    return now_ms * _NS_PER_MS + int(took_ms * _NS_PER_MS)


def _seed(topology: str, story: Story) -> bytes:
    return f"{topology}\0{story.root}\0{story.attempt}\0{story.started_ms}".encode()


def _number(seed: bytes, what: bytes, size: int) -> int:
    """A number of ``size`` bytes that is not 0, the same for the same seed."""
    return int.from_bytes(hashlib.blake2b(seed + b"\0" + what, digest_size=size).digest(), "big") or 1


def _remote(traceparent: str | None) -> SpanContext | None:
    """The context that a ``traceparent`` names; its form was checked when it was read."""
    if traceparent is None:
        return None
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, is_sampled=bool(int(flags, 16) & 1))


def _tree_attributes(topology: str, story: Story, message: Mapping[str, str | int]) -> Attributes:
    known: dict[str, str | int | bool | None] = {
        "sparkbolt.topology": topology,
        "sparkbolt.component": story.component,
        "sparkbolt.task": story.task,
        "sparkbolt.root": story.root,
        "sparkbolt.attempt": story.attempt,
        "sparkbolt.state": str(story.state),
        "sparkbolt.outcome": str(story.outcome) if story.outcome is not None else None,
        "sparkbolt.cause": str(story.cause) if story.cause is not None else None,
        "sparkbolt.source": story.source,
        "sparkbolt.position": story.position,
        "sparkbolt.started_in": story.started_in,
        "sparkbolt.ended_in": story.ended_in,
        "error.type": _error_type(story),
    }
    if message:
        known |= {"messaging.operation.type": "process", "messaging.operation.name": "process", **message}
    if story.message_id is not None:
        known["messaging.message.id" if message else "sparkbolt.message_id"] = story.message_id
    return {name: value for name, value in known.items() if value is not None}


def _error_type(story: Story) -> str | None:
    """The exception's type if one was raised, otherwise the cause; None for a tree that did not fail."""
    if story.state != TreeState.FAILED:
        return None
    kind = str(_exception(story).get("exception.type", ""))
    return kind or (str(story.cause) if story.cause is not None else "failed")


def _exception(story: Story) -> Attributes:
    """The attributes of the event ``exception``; empty if no exception failed the tree."""
    if story.state != TreeState.FAILED or (story.traceback is None and story.cause != Cause.EXCEPTION):
        return {}
    reason = _BY.sub("", story.why)
    kind, _, message = reason.partition(": ")
    if not kind.replace(".", "").isidentifier():
        kind, message = "", reason
    parts: Attributes = {"exception.type": kind, "exception.message": message}
    if story.traceback:
        parts["exception.stacktrace"] = story.traceback
    return {name: value for name, value in parts.items() if value}


def _hop_spans(seed: bytes, tree: Span, story: Story, durations_ms: Mapping[int, float], values: bool) -> list[Span]:
    spans: list[Span] = []
    before: list[tuple[Hop, SpanContext]] = []
    for hop in story.hops:
        place = f"{hop.micro_batch_id}/{hop.depth}/{hop.component}/{hop.task}".encode()
        context = SpanContext(tree.context.trace_id, _number(seed, place, 8))
        start_ns = max(tree.start_ns, hop.now_ms * _NS_PER_MS)
        lost = hop.failed > 0
        span = Span(
            name=hop.who,
            context=context,
            parent=_sender(hop, before) or tree.context,
            start_ns=start_ns,
            end_ns=max(start_ns, _end_ns(hop.now_ms, hop.micro_batch_id, durations_ms)),
            attributes=_hop_attributes(hop, values),
            error=(story.why or "failed") if lost and story.state == TreeState.FAILED else None,
        )
        spans.append(span)
        before.append((hop, context))
    return spans


def _sender(hop: Hop, before: Sequence[tuple[Hop, SpanContext]]) -> SpanContext | None:
    """The span of the hop that sent the tuple of this one; None if no hop is known to have sent it.

    That is the last hop of the task that the story names. If it names none, because only the path of one tuple is
    known, it is the last earlier hop that is nearer to the spout.
    """
    named = [context for other, context in before if other.who == hop.source]
    if named or hop.depth == 0:
        return named[-1] if named else None
    nearer = [context for other, context in before if other.depth < hop.depth and not other.is_answer]
    return nearer[-1] if nearer else None


def _hop_attributes(hop: Hop, values: bool) -> Attributes:
    found: Attributes = {
        "sparkbolt.component": hop.component,
        "sparkbolt.task": hop.task,
        "sparkbolt.micro_batch": hop.micro_batch_id,
    }
    counts = {"tuples": hop.tuples, "acked": hop.acked, "failed": hop.failed, "held": hop.held}
    counts["emitted"] = sum(count for _, count in hop.emitted)
    found |= {f"sparkbolt.{name}": count for name, count in counts.items() if count}
    if values and hop.values:
        found["sparkbolt.values"] = hop.values
    return found
