"""The part of a stream that declares operators: their ids, tasks and groupings, and the checks of their fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sparkbolt.api.arguments import field_names, text
from sparkbolt.api.bolt_declarer import BoltDeclarer, StreamHandle, StreamHandles
from sparkbolt.api.components import BoltBase
from sparkbolt.api.config import ComponentSettings, did_you_mean
from sparkbolt.api.function_bolts import FunctionBolt
from sparkbolt.api.groupings import Grouping, ShuffleGrouping
from sparkbolt.api.topology import TopologyDeclarer, declarations_of
from sparkbolt.api.tuples import DEFAULT_STREAM
from sparkbolt.errors import ConfigError

FIELD = text("the name of a field")


class OperatorSettings(ComponentSettings, total=False):
    """The keyword arguments that every operator takes, besides its own."""

    name: str | None
    """The id of the bolt. By default it is made of the id of the last component above it that was named, of the
    operator, and of a number: ``lines-flat-map-1``. Name operators that keep state: a made id changes if another
    operator of the same kind is put before it."""
    parallelism: int | None
    """How many tasks the bolt has; by default as many as the component whose tuples it gets."""
    renamed_from: str | None
    """The id that the bolt had in a checkpoint before."""


class OperatorInput(StreamHandles):
    """The tuples that operators read: streams of components that have the same fields."""

    def __init__(
        self, builder: TopologyDeclarer, handles: tuple[StreamHandle, ...], fields: tuple[str, ...], base: str
    ) -> None:
        """Not for users: ``builder.stream`` and the operators make streams."""
        self.handles = handles
        """The streams of components that it consists of: one, or several after ``merge``."""
        self.fields = fields
        """The names of the fields of its tuples."""
        self._builder = builder
        self._base = base

    def __repr__(self) -> str:
        """Return the components and the fields."""
        names = [
            one.component if one.stream == DEFAULT_STREAM else f"{one.component}:{one.stream}" for one in self.handles
        ]
        return f"<Stream of {', '.join(map(repr, names))}: {', '.join(self.fields)}>"


def declare_operator(
    source: OperatorInput, bolt: BoltBase, kind: str, settings: OperatorSettings, grouping: Grouping | None = None
) -> tuple[BoltDeclarer, str]:
    """Declare a bolt that reads a stream.

    Args:
        source: the stream.
        bolt: the bolt.
        kind: what a made id says of it.
        settings: the arguments that each operator takes.
        grouping: how the bolt gets the tuples; None: shuffle.

    Returns:
        Its handle, and what the made ids of operators below it begin with.
    """
    own: Any = dict(settings)
    name, parallelism = own.pop("name", None), own.pop("parallelism", None)
    id_ = derived_id(source._builder, f"{source._base}-{kind}") if name is None else name
    declarer = source._builder.set_bolt(id_, bolt, _tasks(source) if parallelism is None else parallelism, **own)
    declarer.grouping(source, ShuffleGrouping() if grouping is None else grouping)
    return declarer, source._base if name is None else name


def _tasks(source: OperatorInput) -> int:
    """How many tasks emit a stream: the most of those of its components."""
    declared = declarations_of(source._builder)
    known = [declared[str(handle.component)].parallelism for handle in source.handles]
    return max((number for number in known if isinstance(number, int)), default=1)


def known_fields(source: OperatorInput, operator: str, argument: str, names: Any) -> list[str]:
    """Return names of fields as a list.

    Raises:
        ConfigError: they are no names, or the stream does not have them.
    """
    listed = [names] if isinstance(names, str) else field_names(argument, list(names), "['user']")
    for name in listed:
        if name not in source.fields:
            hint = did_you_mean(name, source.fields) or f": its fields are {list(source.fields)}"
            raise ConfigError(f"{operator}: {source} has no field {name!r}{hint}")
    return listed


def check_new_fields(
    operator: str, new: Sequence[str], fields: Sequence[str], mend: str = "choose another name"
) -> None:
    """Check that new fields differ from one another and from those that a result has already.

    Raises:
        ConfigError: the result would have two fields with one name.
    """
    for name in new:
        if name in fields or new.count(name) > 1:
            raise ConfigError(f"{operator}: the result would have two fields {name!r}: {mend}")


def derived_id(builder: TopologyDeclarer, stem: str) -> str:
    """The id of a component that was not named: the stem with the first number that is free."""
    known, number = declarations_of(builder), 1
    while f"{stem}-{number}" in known:
        number += 1
    return f"{stem}-{number}"


def kebab(name: str, end: str) -> str:
    """The name of a class in an id, without its usual end.

    >>> kebab("JsonLinesBolt", "Bolt"), kebab("Bolt", "Bolt"), kebab("HTTPSink", "Bolt"), kebab("check_order", "Bolt")
    ('json-lines', 'bolt', 'http-sink', 'check-order')
    """
    stem = name.removesuffix(end) or name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_", "-", stem).lower().strip("-<>") or end.lower()


def kind_of(bolt: object) -> str:
    """What a made id says of a user's bolt."""
    named = bolt.function if isinstance(bolt, FunctionBolt) else type(bolt)
    return kebab(getattr(named, "__name__", "bolt"), "Bolt")


def refuse_bolt(operator: str, given: object) -> None:
    """Refuse a bolt where a function is expected: a function bolt can be called, too.

    Raises:
        ConfigError: it is one.
    """
    if isinstance(given, BoltBase):
        raise ConfigError(f"{operator}: got the bolt {kind_of(given)!r}, expected a function: write .through(...)")
