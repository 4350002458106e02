"""Targets of dead letters: what ``dead_letters=`` means for one spout.

The keyword of ``set_spout`` overrides the spout's attribute, which overrides the topology's setting. Without any of
them, dead letters go to the checkpoint, so that no message is lost unless the user chooses ``log:``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from sparkbolt.api.components import Spout
from sparkbolt.api.config import did_you_mean
from sparkbolt.api.dead_letters import (
    CHECKPOINT,
    FILE,
    LAST_NAMES,
    LETTER_NAMES,
    LOG,
    STORY_FIELD,
    STREAM,
    DeadLetterSink,
    FunctionSink,
    is_sink,
    stream_of,
)
from sparkbolt.api.tuples import DEFAULT_STREAM, StreamDef
from sparkbolt.base.engine_door import engine
from sparkbolt.errors import ConfigError

Way = str | DeadLetterSink
"""``stream:NAME``, ``checkpoint:``, or the sink."""


def given_for(spout: Any, keyword: Any, setting: Any) -> Any:
    """Return the setting for a spout: from ``set_spout``, its attribute, or the whole topology; else None."""
    own = inspect.getattr_static(spout, "dead_letters", None)
    if isinstance(own, staticmethod):
        own = own.__func__
    elif not isinstance(own, FunctionType):  # a function in the class is a sink function, not a method
        own = getattr(spout, "dead_letters", None)
    return next((given for given in (keyword, own, setting) if given is not None), None)


def where_nothing_is_said(spout: Any, retry: object) -> str:
    """Return where a spout's dead letters go if ``dead_letters`` is set neither for it nor for the whole topology.

    Args:
        spout: the component.
        retry: its policy. A ``Spout`` without a policy decides itself about failed messages, so none is given up.
    """
    return LOG if isinstance(spout, Spout) and retry is None else CHECKPOINT


def way_of(given: Any, spout: Any) -> Way | None:
    """Return the target that a value of ``dead_letters`` means; None if no dead letters are written.

    Raises:
        ConfigError: it has no meaning for this spout.

    >>> way_of("stream:dead", None), way_of("log:", None)
    ('stream:dead', None)
    """
    if given is None or given == LOG:
        return None
    if given == CHECKPOINT:
        return CHECKPOINT
    if not isinstance(given, str):
        if is_sink(given):
            sink: DeadLetterSink = given
            return sink
        if callable(given) and not isinstance(given, type):
            return FunctionSink(given)
    elif given.startswith(STREAM) and given != STREAM:
        return given
    elif given.startswith(FILE) and given != FILE:
        made: DeadLetterSink = engine("file_sink")(given[len(FILE) :])
        return made
    elif given:
        named: DeadLetterSink | None = spout.dead_letter_sink(given)
        if named is not None:
            return named
    raise ConfigError(
        f"dead_letters is {given!r:.100}, which means nothing to a {type(spout).__name__}: expected 'checkpoint:', "
        "'file:PATH', 'stream:NAME', a function of the letter, an object with open, write and close, or 'log:' for none"
    )


def stream_for(given: Any, streams: tuple[StreamDef, ...]) -> tuple[StreamDef, ...]:
    """Return the stream of dead letters if they go to one that the spout does not declare; else an empty tuple.

    >>> stream_for("stream:dead", (StreamDef("default", ("line",)),))
    (StreamDef(name='dead', fields=('line', 'story'), direct=False),)
    """
    name = stream_of(given)
    if not name or any(stream.name == name for stream in streams):
        return ()
    fields = next((stream.fields for stream in streams if stream.name == DEFAULT_STREAM), ())
    return (StreamDef(name, (*(field for field in fields if field != STORY_FIELD), STORY_FIELD)),)


def stream_mistakes(given: Any, streams: Mapping[str, StreamDef], subscribed: bool) -> list[str]:
    """Return the mistakes of the stream that takes dead letters, one sentence each.

    Args:
        given: the value of ``dead_letters``.
        streams: the spout's streams by name, including the one for its dead letters.
        subscribed: whether a bolt subscribes to that stream.
    """
    name = stream_of(given)
    if name is None:
        return []
    if name == DEFAULT_STREAM:
        return ["its dead letters go to stream 'default', where they came from: name another one"]
    stream, mistakes = streams[name], []
    own = streams[DEFAULT_STREAM].fields if DEFAULT_STREAM in streams else ()
    if stream.direct:
        mistakes.append(f"its dead letters go to stream {name!r}, which is direct: nobody names their tasks")
    known = (*own, STORY_FIELD, *LETTER_NAMES, *LAST_NAMES)
    for field in stream.fields:
        if field not in known:
            hint = did_you_mean(field, known) or f": expected one of {', '.join(known)}"
            mistakes.append(f"its dead letters go to stream {name!r}, whose field {field!r} is nothing they have{hint}")
    if STORY_FIELD in own and STORY_FIELD in stream.fields:
        mistakes.append(
            f"its dead letters go to stream {name!r}, where 'story' is their story, and it has a field of that name: "
            "declare the stream's fields without it"
        )
    if not subscribed:
        mistakes.append(
            f"its dead letters go to stream {name!r}, to which no bolt subscribes: they would be lost at once"
        )
    return mistakes
