"""Validation: finds all mistakes of a topology at once, one sentence each.

Two checks are stricter than Storm's. A grouping field must be declared in the very stream that the bolt subscribes to
(Storm fails at the first emit), and a second subscription to a stream is rejected (in Storm it replaces the first).
"""

from __future__ import annotations

import inspect
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import cloudpickle

from sparkbolt.api.arguments import field_mistakes, is_writable, whole
from sparkbolt.api.class_attributes import changed_class_attributes
from sparkbolt.api.committers import CommittingBolt
from sparkbolt.api.components import AsyncBolt, BoltBase, ColumnBolt, Component, PartitionedSpout, Spout
from sparkbolt.api.config import Config, did_you_mean
from sparkbolt.api.dead_letter_targets import stream_for, stream_mistakes, way_of
from sparkbolt.api.dead_letters import CHECKPOINT
from sparkbolt.api.groupings import DirectGrouping, Grouping
from sparkbolt.api.method_validation import method_mistakes
from sparkbolt.api.named_fields import types_of
from sparkbolt.api.pickling import CannotKeepError, Pickling, attributes_of
from sparkbolt.api.runtime_bolts import RuntimeBolt
from sparkbolt.api.statefulness import keeps_state
from sparkbolt.api.tuples import DEFAULT_STREAM, StreamDef, parse_outputs
from sparkbolt.base.exceptions import printed
from sparkbolt.base.ids import MAX_TASK_NUMBER
from sparkbolt.base.words import Word
from sparkbolt.errors import ConfigError

_FORBIDDEN = "/.:\\"
FEEDBACK = ", feedback"
"""The end of the description of a subscription with feedback."""
NAME_BYTES_MAX = 200
"""The largest size of a name in UTF-8: files are named after it, and a file name may have 255 bytes."""


@dataclass(frozen=True)
class Subscription:
    """A bolt gets the tuples of one stream of one component, spread over its tasks by a grouping."""

    source: str
    stream: str
    grouping: Grouping
    feedback: bool = False
    """Whether the bolt gets the tuples in the next micro-batch, so that the subscription may close a cycle."""

    def describe(self) -> str:
        """The grouping, and whether it is a feedback subscription.

        >>> from sparkbolt.api.groupings import ShuffleGrouping
        >>> Subscription("fetch", "default", ShuffleGrouping(), feedback=True).describe()
        'shuffle, feedback'
        """
        return self.grouping.describe() + (FEEDBACK if self.feedback else "")


class Role(Word):
    """The role in which a component was declared: by ``set_spout`` or ``set_bolt``."""

    SPOUT = "spout"
    BOLT = "bolt"


@dataclass
class Declaration:
    """The arguments of ``set_spout`` or ``set_bolt``, not yet checked."""

    kind: Role
    id: Any
    component: Any
    parallelism: Any
    settings: Mapping[str, Any]
    subscriptions: list[Subscription] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)
    """The mistakes that its ``BoltDeclarer`` has found already."""
    dead_letters: Any = None
    """For a spout: the value that applies, of ``set_spout``, of its attribute, or of the topology."""
    renamed_from: Any = None

    def __str__(self) -> str:
        """Return ``bolt 'split'``, with which sentences begin."""
        return f"{self.kind} {self.id!r}"

    def own_settings(self) -> Mapping[str, Any]:
        """Return the component's own settings: those of its declaration, and the policy in its attribute ``retry``."""
        brought = self.component.retry if isinstance(self.component, Spout | PartitionedSpout) else None
        return self.settings if brought is None else {"retry": brought, **self.settings}

    def streams(self) -> tuple[StreamDef, ...]:
        """Return the streams of the component, including that of its dead letters; none if ``outputs`` is invalid."""
        try:
            streams = _declared_streams(self.component)
        except ValueError:
            return ()
        return (*streams, *stream_for(self.dead_letters, streams))


def mistakes_of(name: Any, config: Config, declarations: Sequence[Declaration]) -> list[str]:
    """Return all mistakes of a topology, one sentence each, in the order of declaration; empty if it can run."""
    mistakes = [f"the topology's name: {why}" for why in _name_mistakes(name)]
    declared: dict[Any, Declaration] = {}
    for declaration in declarations:
        if isinstance(declaration.id, str):
            if declaration.id in declared:
                mistakes.append(f"{declaration}: the id is already that of a {declared[declaration.id].kind}")
            declared.setdefault(declaration.id, declaration)
    for declaration in declarations:
        mistakes += [f"{declaration}: {why}" for why in _own_mistakes(declaration, config)]
        mistakes += [f"{declaration}: {why}" for why in _subscription_mistakes(declaration, declared)]
        mistakes += [f"{declaration}: {why}" for why in _dictionary_mistakes(declaration, declared)]
        mistakes += [f"{declaration}: {why}" for why in _field_mistakes(declaration, declared)]
        mistakes += [f"{declaration}: {why}" for why in _input_mistakes(declaration, declared)]
        mistakes += [f"{declaration}: {why}" for why in _runtime_mistakes(declaration, declared, config)]
        mistakes += [f"{declaration}: {why}" for why in _dead_letter_mistakes(declaration, declarations)]
        mistakes += [f"{declaration}: {why}" for why in _transactional_mistakes(declaration, config)]
        mistakes += [f"{declaration}: {why}" for why in _rename_mistakes(declaration, declarations)]
    if config.transactional and config.acker_tasks == 0:
        mistakes.append(
            "it is transactional, and acker_tasks is 0: without acks nobody knows what has failed, so leave it out"
        )
    if not any(declaration.kind == Role.SPOUT for declaration in declarations):
        mistakes.append("there is no spout: a topology needs at least one")
    total = sum(d.parallelism for d in declarations if not _parallelism_mistakes(d.parallelism))
    if total > MAX_TASK_NUMBER:
        mistakes.append(f"all components together have {total} tasks, expected at most {MAX_TASK_NUMBER}")
    mistakes += [
        f"bolt {cycle[0]!r}: its tuples come back to it, {' -> '.join(cycle)}: give its subscription to {cycle[-2]!r} "
        "feedback=True, and it gets these tuples in the next micro-batch"
        for cycle in cycles(declared)
    ]
    return mistakes


def _rename_mistakes(declaration: Declaration, declarations: Sequence[Declaration]) -> list[str]:
    before = declaration.renamed_from
    if before is None:
        return []
    mistakes = [f"renamed_from={printed(before)}: {why}" for why in _name_mistakes(before)]
    others = [other for other in declarations if other is not declaration]
    if before in (other.id for other in (*others, declaration)):
        mistakes.append(f"renamed_from={before!r}, and there is a component {before!r}: name the id that it had before")
    if before in (other.renamed_from for other in others):
        mistakes.append(f"renamed_from={before!r}, as another component has it: only one can have been {before!r}")
    return mistakes


def _own_mistakes(declaration: Declaration, config: Config) -> list[str]:
    """Return the mistakes of a component that do not depend on other components."""
    mistakes = [f"its id: {why}" for why in _name_mistakes(declaration.id)]
    mistakes += _parallelism_mistakes(declaration.parallelism)
    try:
        config.with_component(declaration.own_settings())
    except ConfigError as error:
        mistakes.append(str(error))
    wrong = _component_mistake(declaration)
    if wrong:
        return [*mistakes, wrong]
    component = declaration.component
    odd = _attribute_mistakes(component)
    if odd:
        return [*mistakes, *odd]
    unsent = _pickle_mistakes(declaration)
    unkept = list(_statefulness_mistakes(component)) if isinstance(component, BoltBase) and not unsent else []
    return mistakes + method_mistakes(component) + _output_mistakes(declaration) + unsent + unkept


def _attribute_mistakes(component: Component) -> list[str]:
    """Return the mistakes in the attributes that describe a component."""
    declaring = next(cls for cls in type(component).__mro__ if cls.__module__ == Component.__module__)
    return [f"its {mistake}" for mistake in field_mistakes(component, declaring)]


def _name_mistakes(name: object) -> list[str]:
    if not isinstance(name, str) or not name:
        return [f"expected a non-empty str, got {name!r}"]
    mistakes = []
    if name.startswith("__"):
        mistakes.append(f"{name!r} begins with '__', which names of the system do: choose another name")
    if any(character in name for character in _FORBIDDEN):
        mistakes.append(f"{name!r} has one of {' '.join(_FORBIDDEN)} in it, which names may not have")
    if not name.isprintable() and is_writable(name):
        mistakes.append(f"{name!r} has a character in it that cannot be printed, such as a newline")
    if not is_writable(name):
        mistakes.append(f"{name!r} has half of a pair of characters in it (a lone surrogate), which no file can hold")
    elif len(name.encode()) > NAME_BYTES_MAX:
        mistakes.append(f"{name[:40]!r}... is {len(name.encode())} bytes long, and {NAME_BYTES_MAX} is the most")
    return mistakes


def _parallelism_mistakes(parallelism: object) -> list[str]:
    mistake = whole().mistake("parallelism", parallelism)
    return [f"its {mistake}"] if mistake else []


def _component_mistake(declaration: Declaration) -> str | None:
    """Explain why the object cannot be declared in this role; None if it can."""
    component, kind = declaration.component, declaration.kind
    expected: tuple[type, ...] = (Spout, PartitionedSpout) if kind == Role.SPOUT else (BoltBase,)
    if isinstance(component, expected):
        if isinstance(component, BoltBase) and component.starts_trees and component.stateless:
            return "it starts trees and is stateless, expected one of the two: what it emits is kept in its state"
        return None
    if inspect.isclass(component):
        name = component.__name__
        return f"got the class {name}, expected an instance: did you mean {name}()?"
    if isinstance(component, BoltBase):
        return f"got a bolt ({type(component).__name__}), expected a spout: did you mean set_bolt?"
    if isinstance(component, Spout | PartitionedSpout):
        return f"got a spout ({type(component).__name__}), expected a bolt: did you mean set_spout?"
    if inspect.isroutine(component):
        hint = ": did you forget @bolt(outputs=[...]) above it?" if kind == Role.BOLT else ""
        return f"got the function {component.__name__}, expected a {kind}{hint}"
    return f"got {type(component).__name__}, expected an instance of a {kind} class"


def _declared_streams(component: Any) -> tuple[StreamDef, ...]:
    """Return the streams of ``outputs``, and those that the runtime of the bolt has besides; see ``parse_outputs``."""
    streams = parse_outputs(getattr(component, "outputs", None))
    added = component.runtime_outputs() if isinstance(component, RuntimeBolt) else {}
    names = {stream.name for stream in streams}
    return (*parse_outputs({name: fields for name, fields in added.items() if name not in names}), *streams)


def _output_mistakes(declaration: Declaration) -> list[str]:
    try:
        streams = _declared_streams(declaration.component)
    except ValueError as error:
        return [f"its outputs: {error}"]
    return [f"its stream {stream.name!r}: {why}" for stream in streams for why in _name_mistakes(stream.name)]


def _pickle_mistakes(declaration: Declaration) -> list[str]:
    """Return mistakes if the component or its groupings cannot be pickled, to be sent to where tasks run."""
    mistakes = []
    error = pickle_error(declaration.component)
    if error is not None:
        attributes = getattr(declaration.component, "__dict__", {})
        guilty = [name for name, value in attributes.items() if pickle_error(value) is not None]
        used = _unpicklable_variable(declaration.component)
        what = f"its attribute {guilty[0]!r}" if guilty else type(declaration.component).__name__
        where = "not in __init__"
        if used is not None:
            what, where = f"the variable {used!r} that it uses", "or in a module that is imported"
        mistakes.append(f"{what} cannot be pickled ({error}): make it in prepare, or open of a spout, {where}")
    for subscription in declaration.subscriptions:
        error = pickle_error(subscription.grouping)
        if error is not None:
            mistakes.append(f"its grouping {subscription.grouping.describe()} cannot be pickled ({error})")
    return mistakes


def _unpicklable_variable(component: Component) -> str | None:
    """Return the global or outer variable that keeps the user's functions from being pickled; None if none is found."""
    classes = [cls for cls in type(component).__mro__ if not cls.__module__.startswith("sparkbolt.")]
    for value in [
        *getattr(component, "__dict__", {}).values(),
        *(value for cls in classes for value in vars(cls).values()),
    ]:
        if isinstance(value, FunctionType) and pickle_error(value) is not None:
            variables = inspect.getclosurevars(value)
            for name, used in {**variables.globals, **variables.nonlocals}.items():
                if pickle_error(used) is not None:
                    return name
    return None


def _statefulness_mistakes(bolt: BoltBase) -> Iterator[str]:
    """Yield mistakes for state that a class holds, and for attributes of ``__init__`` that cannot be stored."""
    if not bolt.stateless:
        for name, method in changed_class_attributes(bolt):
            yield (
                f"{method} changes {name!r}, which its class holds: all tasks of a process share that, and it is not "
                f"stored. Set self.{name} in prepare, or write transient = [{name!r}] if it may be lost"
            )
    if not keeps_state(bolt):
        return
    try:
        sent = cloudpickle.loads(cloudpickle.dumps(bolt))  # the copy that tasks get
    except Exception:  # noqa: BLE001  a user's __setstate__ may raise anything, perhaps only in this process
        return
    for name, value in attributes_of(sent).items():
        error = _unkept(sent, value) if name not in sent.transient else None
        if error is not None:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            left_out = f"write transient = [{name!r}] in its class, which leaves it out"
            mend = (
                f"give it a function that a module defines by name, or {left_out}"
                if isinstance(value, FunctionType)
                else f"{left_out}, and make it in prepare if it is a connection or the like"
            )
            yield (
                f"it keeps state, and its attribute {name!r} of type {kind} cannot be kept with it ({error}): {mend}; "
                "or stateless = True, if it keeps nothing"
            )


def _unkept(bolt: BoltBase, value: object) -> str | None:
    """Explain why pickle cannot store the value of an attribute; None if it can, or if this is not certain."""
    namespace = vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
    try:
        Pickling(namespace, {"self": bolt}).dumps(value)
    except CannotKeepError as error:
        return str(error) if isinstance(error.__cause__, pickle.PicklingError | TypeError | AttributeError) else None
    return None


def pickle_error(value: object) -> str | None:
    """Explain in a few words why a value cannot be pickled; None if it can."""
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001  a user's __reduce__ may raise anything
        return f"{type(error).__name__}: {error}"
    return None


def _transactional_mistakes(declaration: Declaration, config: Config) -> Iterator[str]:
    """Yield each need of a component that a transactional topology cannot meet."""
    component = declaration.component
    if not config.transactional:
        return
    if isinstance(component, PartitionedSpout) and component.tracked is False:
        yield "its records are not tracked, and in a transactional topology what fails of them could not be left out"
    for subscription in declaration.subscriptions:
        if subscription.feedback:
            yield (
                f"its subscription to {subscription.source!r} has feedback=True, whose tuples wait for the next "
                "micro-batch, and in a transactional topology each tree is complete at the end of its micro-batch: "
                "leave one of the two out"
            )
    if not isinstance(component, BoltBase):
        return
    if isinstance(component, RuntimeBolt) and component.starts_trees is not True:
        yield (
            "it acks tuples when they leave its windows, and a transactional topology cannot hold tuples over "
            "micro-batches: leave ack_on_expiry out"
        )
    elif not isinstance(component, CommittingBolt) and declaration.settings.get("effects", config.effects) == "once":
        declared = "its calls may have effects outside" if isinstance(component, AsyncBolt) else "it has no outputs"
        if isinstance(component, AsyncBolt) or not declaration.streams():
            yield (
                f"{declared}, and a micro-batch of a transactional topology may run several times: make it a "
                "Committer, whose effects are held back until all has succeeded, or declare it with "
                "effects='repeatable' if a repeated effect does no harm, also of a tuple that fails, or with "
                "effects='none' if it has none but its state"
            )


def _subscription_mistakes(declaration: Declaration, known: Mapping[Any, Declaration]) -> list[str]:
    mistakes = list(declaration.mistakes)
    if declaration.kind == Role.BOLT and not declaration.subscriptions and not mistakes:
        mistakes.append("it subscribes to nothing: call a grouping method on what set_bolt returns")
    seen: set[tuple[str, str]] = set()
    for subscription in declaration.subscriptions:
        key = (subscription.source, subscription.stream)
        if key in seen:
            mistakes.append(
                f"it subscribes twice to stream {subscription.stream!r} of {subscription.source!r}, "
                "expected one grouping: Storm would forget the first of the two in silence"
            )
        seen.add(key)
        why = _source_mistake(subscription, known)
        if why:
            mistakes.append(why)
    return mistakes


def _source_mistake(subscription: Subscription, known: Mapping[Any, Declaration]) -> str | None:
    """Explain why a subscription does not fit its source; None if it fits."""
    source = known.get(subscription.source)
    if source is None:
        ids = [str(id_) for id_ in known]
        hint = did_you_mean(subscription.source, ids) or f": the components are {ids}"
        return f"it subscribes to {subscription.source!r}, which does not exist{hint}"
    if _component_mistake(source) or _output_mistakes(source):
        return None
    streams = {stream.name: stream for stream in source.streams()}
    stream = streams.get(subscription.stream)
    where = f"stream {subscription.stream!r} of {subscription.source!r}"
    if stream is None:
        hint = did_you_mean(subscription.stream, streams) or f": it declares {list(streams)}"
        if not streams:
            fields = '["field", ...]'
            wanted = fields if subscription.stream == DEFAULT_STREAM else f'{{"{subscription.stream}": {fields}}}'
            hint = f": it declares none: give it outputs = {wanted}"
        return f"it subscribes to {where}, which {subscription.source!r} does not declare{hint}"
    direct = isinstance(subscription.grouping, DirectGrouping)
    if direct and not stream.direct:
        return f"it subscribes to {where} with direct_grouping, but the stream is not declared as Direct([...])"
    if stream.direct and not direct:
        described = subscription.grouping.describe()
        return f"it subscribes to {where} with {described}, but the stream is direct, expected direct_grouping"
    for name in subscription.grouping.fields:
        if name not in stream.fields:
            hint = did_you_mean(name, stream.fields) or f": its fields are {list(stream.fields)}"
            return f"it groups {where} by {name!r}, which that stream does not declare{hint}"
    return None


def _dictionary_mistakes(declaration: Declaration, known: Mapping[Any, Declaration]) -> list[str]:
    """Return the mistakes in the attribute ``dictionaries`` of a column bolt."""
    bolt = declaration.component
    if not isinstance(bolt, ColumnBolt):
        return []
    if field_mistakes(bolt, ColumnBolt):
        return []
    fields = [field_ for names in _inputs(declaration, known).values() for field_ in names]
    return [
        f"its dictionaries name {name!r}, which no stream that it subscribes to declares"
        + (did_you_mean(name, fields) or f": their fields are {sorted(set(fields))}")
        for name in bolt.dictionaries
        if name not in fields
    ]


def _field_mistakes(declaration: Declaration, known: Mapping[Any, Declaration]) -> Iterator[str]:
    """Yield why each tuple of a stream would fail in a bolt that Sparkbolt ships."""
    bolt = declaration.component
    if isinstance(bolt, BoltBase):
        for (source, stream), fields in _inputs(declaration, known).items():
            why = bolt._unfit(fields)
            if why:
                yield f"it gets stream {stream!r} of {source!r} with the fields {list(fields)}, and {why}"


def _input_mistakes(declaration: Declaration, known: Mapping[Any, Declaration]) -> Iterator[str]:
    """Yield why the streams that a bolt subscribes to are not what it declares to read."""
    bolt = declaration.component
    if not isinstance(bolt, BoltBase) or bolt.inputs is None:
        return
    try:
        [read] = parse_outputs({DEFAULT_STREAM: bolt.inputs})
    except ValueError as error:
        yield f"its inputs: {error}"
        return
    expected = types_of(bolt.inputs)
    for (source, name), fields in _inputs(declaration, known).items():
        outputs = known[source].component.outputs
        given = types_of(outputs.get(name) if isinstance(outputs, Mapping) else outputs)
        stream = f"stream {name!r} of {source!r}"
        for field_ in read.fields:
            if field_ not in fields:
                hint = did_you_mean(field_, fields) or f": its fields are {list(fields)}"
                yield f"it reads {field_!r}, which {stream} does not declare{hint}"
            elif not _fits(given.get(field_), expected.get(field_)):
                yield (
                    f"it reads {field_!r} as {expected[field_].__name__}, and {stream} declares it as "
                    f"{given[field_].__name__}"
                )


def _fits(given: object, expected: object) -> bool:
    """Whether values of one type may be values of another; only for two classes it is known that they are not."""
    if Any in (given, expected) or not isinstance(given, type) or not isinstance(expected, type):
        return True
    return issubclass(given, expected) or (expected is float and issubclass(given, int))


def _inputs(declaration: Declaration, known: Mapping[Any, Declaration]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the fields of each stream that a bolt subscribes to, by (component, stream), as far as they exist."""
    inputs = {}
    for subscription in declaration.subscriptions:
        source = known.get(subscription.source)
        for stream in source.streams() if source is not None else ():
            if stream.name == subscription.stream:
                inputs[subscription.source, subscription.stream] = stream.fields
    return inputs


def _runtime_mistakes(declaration: Declaration, known: Mapping[Any, Declaration], config: Config) -> list[str]:
    """Return the mistakes that a runtime bolt finds in itself."""
    bolt = declaration.component
    if not isinstance(bolt, RuntimeBolt) or _output_mistakes(declaration):
        return []
    try:
        config = config.with_component(declaration.own_settings())
    except ConfigError:
        pass
    outputs = {stream.name: stream.fields for stream in declaration.streams()}
    return bolt.mistakes(config, outputs, _inputs(declaration, known))


def _dead_letter_mistakes(declaration: Declaration, declarations: Sequence[Declaration]) -> list[str]:
    """Return the mistakes in the target of dead letters."""
    if declaration.kind == Role.BOLT:
        return ["its dead_letters: only spouts have them"] if "dead_letters" in declaration.settings else []
    if declaration.dead_letters is None or _component_mistake(declaration) or _output_mistakes(declaration):
        return []
    try:
        way = way_of(declaration.dead_letters, declaration.component)
    except ConfigError as error:
        return [str(error)]
    if way == CHECKPOINT:
        return []
    if isinstance(way, str):
        name = way.partition(":")[2]
        subscribed = any((s.source, s.stream) == (declaration.id, name) for d in declarations for s in d.subscriptions)
        streams = {stream.name: stream for stream in declaration.streams()}
        return [*_name_mistakes(name), *stream_mistakes(way, streams, subscribed)]
    error_ = pickle_error(way)
    return [f"its dead_letters {way!r:.80} cannot be pickled ({error_})"] if error_ else []


def cycles(known: Mapping[str, Declaration]) -> list[list[str]]:
    """Return the shortest cycles of subscriptions without feedback, as [a, b, a]; no bolt is in two of them."""
    consumers: dict[str, list[str]] = {id_: [] for id_ in known}
    for id_, declaration in known.items():
        for subscription in declaration.subscriptions:
            if subscription.source in consumers and not subscription.feedback:
                consumers[subscription.source].append(id_)
    shortest: list[list[str]] = []
    reported: set[str] = set()
    for id_ in known:
        cycle = _way_back(id_, consumers.__getitem__) if id_ not in reported else None
        if cycle and not reported.intersection(cycle):
            shortest.append(cycle)
            reported.update(cycle)
    return shortest


def _way_back(start: str, consumers: Callable[[str], Sequence[str]]) -> list[str] | None:
    """Return a shortest path from ``start`` to itself, found breadth first; None if there is none."""
    before: dict[str, str] = {}
    queue = deque([start])
    while queue:
        at = queue.popleft()
        for to in consumers(at):
            if to == start:
                way = [start, at]
                while way[-1] != start:
                    way.append(before[way[-1]])
                return way[::-1] if at != start else [start, start]
            if to not in before:
                before[to] = at
                queue.append(to)
    return None
