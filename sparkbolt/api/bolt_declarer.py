"""Handles of declared components, and the bolt declarer, which subscribes a bolt to streams, each with a grouping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sparkbolt.api.config import did_you_mean
from sparkbolt.api.groupings import (
    AllGrouping,
    DirectGrouping,
    FieldsGrouping,
    GlobalGrouping,
    Grouping,
    LocalOrShuffleGrouping,
    NoneGrouping,
    PartialKeyGrouping,
    ShuffleGrouping,
)
from sparkbolt.api.tuples import DEFAULT_STREAM
from sparkbolt.api.validation import Declaration, Subscription
from sparkbolt.base.exceptions import printed


@dataclass(frozen=True)
class StreamHandle:
    """One stream of a declared component: ``checked.stream("errors")``. Grouping methods accept it."""

    component: str
    """The id of the component that emits it."""
    stream: str


class ComponentHandle:
    """A declared component: ``set_spout`` returns it. Grouping methods accept it in place of the component's id."""

    def __init__(self, declaration: Declaration) -> None:
        """Store the declaration of the component."""
        self._declaration = declaration

    @property
    def id(self) -> str:
        """The id of the component."""
        return str(self._declaration.id)

    def stream(self, name: str) -> StreamHandle:
        """Return one of the component's streams, for a grouping method; ``build`` checks that it is declared.

        >>> from sparkbolt import TopologyBuilder, bolt
        >>> check = TopologyBuilder("orders").set_bolt("check", bolt(outputs={"errors": ["why"]})(print))
        >>> check, check.stream("errors")
        (<bolt 'check'>, StreamHandle(component='check', stream='errors'))
        """
        return StreamHandle(self.id, name)

    def __repr__(self) -> str:
        """Return the role and the id, such as ``<bolt 'check'>``."""
        return f"<{self._declaration}>"


class StreamHandles:
    """Streams that are subscribed to together: ``Stream`` of ``builder.stream`` is one. Grouping methods accept it."""

    handles: tuple[StreamHandle, ...]


Source: TypeAlias = str | ComponentHandle | StreamHandle | StreamHandles
"""What a bolt subscribes to: a component, by its id or its handle, or a handle of one or more of its streams."""


class BoltDeclarer(ComponentHandle):
    """Subscribes a bolt to streams, and is the bolt's handle; ``set_bolt`` returns it.

    Its methods return it, so that calls can be chained; ``build`` checks them.
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise an error that suggests an existing grouping."""
            known = [known for known in dir(type(self)) if known.endswith("grouping")]
            hint = did_you_mean(name, known) or did_you_mean(f"{name}_grouping", known)
            raise AttributeError(f"what set_bolt returns has no {name!r}{hint or ': it has ' + ', '.join(known)}")

    def shuffle_grouping(
        self, component: Source, stream: str = DEFAULT_STREAM, *, feedback: bool = False
    ) -> BoltDeclarer:
        """Send each tuple to one task, in turn."""
        return self.grouping(component, ShuffleGrouping(), stream, feedback=feedback)

    def fields_grouping(
        self, component: Source, fields: Sequence[str], stream: str = DEFAULT_STREAM, *, feedback: bool = False
    ) -> BoltDeclarer:
        """Send tuples with equal ``fields`` to the same task; as in Storm, no fields mean ``global_grouping``."""
        if isinstance(fields, list | tuple) and not fields:
            return self.global_grouping(component, stream, feedback=feedback)
        return self._by_fields(FieldsGrouping, component, fields, stream, feedback)

    def partial_key_grouping(
        self, component: Source, fields: Sequence[str], stream: str = DEFAULT_STREAM, *, feedback: bool = False
    ) -> BoltDeclarer:
        """Like ``fields_grouping``, but each key has two tasks, which share its tuples: for skewed keys."""
        return self._by_fields(PartialKeyGrouping, component, fields, stream, feedback)

    def all_grouping(self, component: Source, stream: str = DEFAULT_STREAM, *, feedback: bool = False) -> BoltDeclarer:
        """Send each tuple to every task."""
        return self.grouping(component, AllGrouping(), stream, feedback=feedback)

    def global_grouping(
        self, component: Source, stream: str = DEFAULT_STREAM, *, feedback: bool = False
    ) -> BoltDeclarer:
        """Send every tuple to the task with the lowest number."""
        return self.grouping(component, GlobalGrouping(), stream, feedback=feedback)

    def none_grouping(self, component: Source, stream: str = DEFAULT_STREAM, *, feedback: bool = False) -> BoltDeclarer:
        """Send each tuple to any task."""
        return self.grouping(component, NoneGrouping(), stream, feedback=feedback)

    def direct_grouping(
        self, component: Source, stream: str = DEFAULT_STREAM, *, feedback: bool = False
    ) -> BoltDeclarer:
        """Send each tuple to the task that the sender names; the stream must be declared as ``Direct([...])``."""
        return self.grouping(component, DirectGrouping(), stream, feedback=feedback)

    def local_or_shuffle_grouping(
        self, component: Source, stream: str = DEFAULT_STREAM, *, feedback: bool = False
    ) -> BoltDeclarer:
        """Send each tuple to one task: in the producer's process if the bolt is fused, else like shuffle grouping."""
        return self.grouping(component, LocalOrShuffleGrouping(), stream, feedback=feedback)

    def grouping(
        self, component: Source, grouping: Grouping, stream: str = DEFAULT_STREAM, *, feedback: bool = False
    ) -> BoltDeclarer:
        """Send tuples to the tasks that a custom grouping chooses (Storm's ``customGrouping``).

        Args:
            component: the component that emits them: its id, or its handle; or the handle of one of its streams, or a
                ``Stream``.
            grouping: chooses the tasks.
            stream: the stream on which they are emitted; it is not given in addition to the handle of a stream.
            feedback: whether the bolt gets them in the micro-batch after the one in which they are emitted. A
                subscription with ``feedback`` may close a cycle; their trees stay open, at most for ``max_hops``
                micro-batches in which they are fed back.
        """
        if isinstance(component, StreamHandles):
            for handle in component.handles:
                self.grouping(handle, grouping, stream, feedback=feedback)
            return self
        given: object = grouping
        marked: object = feedback
        source, stream = self._named(component, stream)
        wrong = next((name for name in (source, stream) if not isinstance(name, str)), None)
        if wrong is not None:
            self._declaration.mistakes.append(
                f"it subscribes to {printed(wrong)}, expected the id or the handle of a component"
            )
        elif not isinstance(given, Grouping):
            self._declaration.mistakes.append(
                f"it subscribes to {source!r} with {given!r}, expected an instance of a Grouping class"
            )
        elif not isinstance(marked, bool):
            self._declaration.mistakes.append(
                f"it subscribes to {source!r} with feedback={printed(marked)}, expected True or False"
            )
        else:
            self._declaration.subscriptions.append(Subscription(source, stream, given, feedback))
        return self

    def _by_fields(
        self,
        make: Callable[[Sequence[str]], Grouping],
        component: Source,
        fields: Sequence[str],
        stream: str,
        feedback: bool,
    ) -> BoltDeclarer:
        try:
            grouping = make(fields)
        except ValueError as error:
            self._declaration.mistakes.append(f"it subscribes to {self._named(component, stream)[0]!r}: {error}")
            return self
        return self.grouping(component, grouping, stream, feedback=feedback)

    def _named(self, source: Any, stream: Any) -> tuple[Any, Any]:
        """Return the id of a component and the name of its stream."""
        if isinstance(source, ComponentHandle):
            return source.id, stream
        if not isinstance(source, StreamHandle):
            return source, stream
        if stream not in (DEFAULT_STREAM, source.stream):
            self._declaration.mistakes.append(
                f"it subscribes to {source}, and stream={stream!r} names another one: leave one of the two out"
            )
        return source.component, source.stream
