"""The topology: which component emits what, and which components receive it.

Its numbers of tasks, streams and subscriptions are those of ``numbering``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Unpack

import cloudpickle

from sparkbolt.api.bolt_declarer import BoltDeclarer, ComponentHandle, StreamHandle
from sparkbolt.api.components import BoltBase, Component, PartitionedSpout, Spout
from sparkbolt.api.config import ComponentSettings, Config
from sparkbolt.api.dead_letter_targets import Way, given_for, way_of, where_nothing_is_said
from sparkbolt.api.groupings import Grouping
from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.numbering import Numbering
from sparkbolt.api.running import RunningTopology, Telemetry
from sparkbolt.api.runtime_bolts import RuntimeBolt
from sparkbolt.api.statefulness import keeps_state
from sparkbolt.api.tuples import StreamDef
from sparkbolt.api.validation import FEEDBACK, Declaration, Role, Subscription, mistakes_of
from sparkbolt.base.engine_door import check_not_imported, engine
from sparkbolt.base.exceptions import printed
from sparkbolt.base.tracebacks import folded
from sparkbolt.base.words import Word
from sparkbolt.errors import ConfigError, InvalidTopology, UnknownNameError

__all__ = [
    "FEEDBACK",
    "BoltDeclarer",
    "ComponentHandle",
    "ComponentSpec",
    "StreamHandle",
    "Subscription",
    "Topology",
    "TopologyDeclarer",
]

REPR_COMPONENTS_MAX = 6
"""How many components the ``repr`` of a topology lists."""


class ComponentKind(Word):
    """The kind of a component, as far as checkpoints distinguish it: with another kind it is another topology."""

    SPOUT = "spout"
    PARTITIONED_SPOUT = "partitioned spout"
    STATELESS_BOLT = "stateless bolt"
    STATEFUL_BOLT = "stateful bolt"


@dataclass(frozen=True)
class ComponentSpec:
    """One component of a valid topology."""

    id: str
    component: Component
    parallelism: int
    streams: tuple[StreamDef, ...]
    subscriptions: tuple[Subscription, ...]
    config: Config
    """The topology's settings, overridden by the component's own."""
    dead_letters: Way | None = None
    """For a spout: where its dead letters go, as ``stream:NAME``, ``checkpoint:`` or as the sink."""
    renamed_from: str | None = None
    """The id that it had before; a checkpoint that knows it by that id goes on with it."""

    @cached_property
    def is_spout(self) -> bool:
        """Whether it is a spout of either kind."""
        return isinstance(self.component, Spout | PartitionedSpout)

    @cached_property
    def keeps_state(self) -> bool:
        """Whether it is a bolt with state that must be kept from one micro-batch to the next."""
        return keeps_state(self.component)

    @property
    def stream_names(self) -> tuple[str, ...]:
        """The names of its streams."""
        return tuple(stream.name for stream in self.streams)

    @property
    def inputs(self) -> tuple[tuple[str, str], ...]:
        """(component, stream) of each subscription."""
        return tuple((subscription.source, subscription.stream) for subscription in self.subscriptions)

    @property
    def kind(self) -> ComponentKind:
        """``spout``, ``partitioned spout``, ``stateless bolt`` or ``stateful bolt``; each is a str."""
        if isinstance(self.component, PartitionedSpout):
            return ComponentKind.PARTITIONED_SPOUT
        if self.is_spout:
            return ComponentKind.SPOUT
        return ComponentKind.STATEFUL_BOLT if self.keeps_state else ComponentKind.STATELESS_BOLT

    def stream(self, name: str) -> StreamDef:
        """Return the declared stream of that name; KeyError if there is none."""
        for stream in self.streams:
            if stream.name == name:
                return stream
        declared = [stream.name for stream in self.streams]
        raise UnknownNameError(f"component {self.id!r} declares no stream {name!r}: its streams are {declared}")


@dataclass(frozen=True, repr=False)
class Topology:
    """A topology that can run; made by ``TopologyBuilder.build``."""

    name: str
    config: Config
    components: Mapping[str, ComponentSpec]
    """By id, in the order of declaration."""
    known_numbering: Numbering | None = None
    """The numbering that goes on from a checkpoint; None in a new one."""

    @cached_property
    def numbering(self) -> Numbering:
        """The numbers of its tasks, streams and subscriptions."""
        return self.known_numbering or Numbering.of(self.components)

    @cached_property
    def spouts(self) -> tuple[ComponentSpec, ...]:
        """The spouts, in the order of declaration."""
        return tuple(spec for spec in self.components.values() if spec.is_spout)

    @cached_property
    def bolts(self) -> tuple[ComponentSpec, ...]:
        """The bolts, in the order of declaration."""
        return tuple(spec for spec in self.components.values() if not spec.is_spout)

    def component(self, id_: str) -> ComponentSpec:
        """Return the component with that id; KeyError if there is none."""
        if id_ not in self.components:
            raise UnknownNameError(f"topology {self.name!r} has no component {id_!r}: it has {list(self.components)}")
        return self.components[id_]

    def tasks(self, component: str) -> tuple[int, ...]:
        """Return the task numbers of a component, ascending; KeyError if there is no such component."""
        numbers = self.numbering.tasks.get(component)
        return numbers if numbers is not None else self.numbering.tasks[self.component(component).id]

    def task_owner(self, number: int) -> tuple[str, int]:
        """Return the component and the index of a task number, also of a task that is gone; KeyError if none had it."""
        return self.numbering.owner(number)

    def consumers(self, component: str, stream: str) -> tuple[tuple[ComponentSpec, int, Grouping], ...]:
        """Return who consumes a stream: (consumer, number of its subscription, grouping), by number."""
        return self._consumers.get((component, stream), ())

    @cached_property
    def feedback_subscriptions(self) -> frozenset[int]:
        """The numbers of the subscriptions whose tuples ride the next micro-batch."""
        numbers = self.numbering.subscription_numbers
        return frozenset(
            numbers[spec.id, sub.source, sub.stream]
            for spec in self.components.values()
            for sub in spec.subscriptions
            if sub.feedback
        )

    def stream_at(self, number: int) -> tuple[str, StreamDef]:
        """Return the (component, stream) of a stream number; KeyError if the topology has no such stream now."""
        component, stream = self.numbering.streams[number]
        return component, self.component(component).stream(stream)

    def stream_index(self, component: str, stream: str) -> int:
        """Return the number of a stream; KeyError if there is no such stream."""
        index = self.numbering.stream_numbers.get((component, stream))
        if index is None:
            self.component(component).stream(stream)
            raise UnknownNameError(f"component {component!r} declares no stream {stream!r}")
        return index

    @cached_property
    def all_tasks(self) -> Mapping[str, tuple[int, ...]]:
        """The task numbers of each component, in the order of declaration."""
        return {id_: self.numbering.tasks[id_] for id_ in self.components}

    @cached_property
    def _consumers(self) -> dict[tuple[str, str], tuple[tuple[ComponentSpec, int, Grouping], ...]]:
        numbers = self.numbering.subscription_numbers
        every = sorted(
            (
                (numbers[spec.id, sub.source, sub.stream], sub, spec)
                for spec in self.components.values()
                for sub in spec.subscriptions
            ),
            key=lambda entry: entry[0],
        )
        consumers: dict[tuple[str, str], tuple[tuple[ComponentSpec, int, Grouping], ...]] = {}
        for number, sub, spec in every:
            entry = (spec, number, sub.grouping)
            consumers[sub.source, sub.stream] = (*consumers.get((sub.source, sub.stream), ()), entry)
        return consumers

    def fingerprint(self) -> dict[str, Any]:
        """Return the parts that must not change while a checkpoint is used, as a JSON object; the order may change."""
        return {
            "name": self.name,
            "components": {
                id_: {
                    "kind": spec.kind,
                    "parallelism": spec.parallelism,
                    "streams": {
                        stream.name: {"fields": list(stream.fields), "direct": stream.direct}
                        for stream in sorted(spec.streams, key=lambda stream: stream.name)
                    },
                    "subscriptions": {
                        f"{sub.source}/{sub.stream}": sub.describe()
                        for sub in sorted(spec.subscriptions, key=lambda sub: (sub.source, sub.stream))
                    },
                    **({"starts_trees": True} if getattr(spec.component, "starts_trees", False) else {}),
                    **_stored_settings(spec.component),
                }
                for id_, spec in sorted(self.components.items())
            },
        }

    @cached_property
    def version(self) -> str:
        """The version of the topology, 16 hexadecimal digits: a hash of its ``fingerprint``."""
        text = json.dumps(self.fingerprint(), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return a description for people and drawings, as a JSON object, in the order of declaration."""
        return {
            "name": self.name,
            "components": [
                {
                    "id": spec.id,
                    "class": type(spec.component).__qualname__,
                    "kind": spec.kind,
                    "parallelism": spec.parallelism,
                    "tasks": list(self.tasks(spec.id)),
                    "streams": [
                        {"name": stream.name, "fields": list(stream.fields), "direct": stream.direct}
                        for stream in spec.streams
                    ],
                    "subscriptions": [
                        {"source": sub.source, "stream": sub.stream, "grouping": sub.describe()}
                        for sub in spec.subscriptions
                    ],
                }
                for spec in self.components.values()
            ],
        }

    @folded
    def run(
        self,
        *,
        stop_after_secs: float | None = None,
        drain_secs: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        master: str | None = None,
        spark: Any = None,
        settings: Mapping[str, str] | None = None,
        py_files: Sequence[str] = (),
        telemetry: Telemetry | None = None,
        apply: bool = False,
        savepoint: str | os.PathLike[str] | None = None,
        copy: Literal["instead", "beside"] | None = None,
        display: Any = None,
        log_dir: str | os.PathLike[str] | None = None,
    ) -> TopologyMetrics:
        """Run on Spark until all spouts are exhausted and every tree is finished, or until Ctrl-C.

        It shows the same display as ``sparkbolt run``. The first Ctrl-C (or SIGTERM) stops new tuples and lets open
        trees finish; the second one stops at once.

        Args:
            stop_after_secs: the time after which to stop as with Ctrl-C; None for never.
            drain_secs: how long a micro-batch may continue after a stop, before it is aborted and left for replay;
                None for 4 seconds, as `sparkbolt run --drain`.
            checkpoint: as for ``start``; so are ``master``, ``spark``, ``settings`` and ``py_files``.
            master: where Spark runs.
            spark: the session to use.
            settings: further settings of a new session.
            py_files: modules for the executors.
            telemetry: where traces go, as for ``start``.
            apply: as for ``start``; so are ``savepoint`` and ``copy``.
            savepoint: a savepoint to begin from.
            copy: what a copy of a checkpoint is for.
            display: a display that replaces the default one (``sparkbolt.faces.cli.display.Display``).
            log_dir: a directory for copies of the log and of printed text, in files with rotation.

        Returns:
            The last metrics, also of a run that was stopped and drained.

        Raises:
            EngineError: the topology failed.
            CheckpointError: the checkpoint is corrupt, is in use, or does not fit the topology.
            KeyboardInterrupt: the run was stopped, and trees were left for replay. A program that does not catch it
                ends like `sparkbolt run`, with exit code 130 (4 if ``stop_after_secs`` expired) and no traceback.
        """
        options = {"master": master, "spark": spark, "settings": settings, "py_files": py_files}
        begun = {"apply": apply, "savepoint": savepoint, "copy": copy}
        arguments = _given(checkpoint=checkpoint, telemetry=telemetry, **begun, **options)
        if drain_secs is not None:
            arguments["drain_secs"] = drain_secs
        arguments = {"stop_after_secs": stop_after_secs, "display": display, "log_dir": log_dir, **arguments}
        check_not_imported(self.name)
        metrics: TopologyMetrics = engine("run")(self, **arguments)
        return metrics

    @folded
    def start(
        self,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        master: str | None = None,
        spark: Any = None,
        settings: Mapping[str, str] | None = None,
        py_files: Sequence[str] = (),
        open_secs: float | None = None,
        telemetry: Telemetry | None = None,
        apply: bool = False,
        savepoint: str | os.PathLike[str] | None = None,
        copy: Literal["instead", "beside"] | None = None,
    ) -> RunningTopology:
        """Start on Spark and return at once; also in a notebook.

        Args:
            checkpoint: a directory for durable state, or its URL; by default a temporary directory, which is removed
                at the end.
            master: the master of a new session, as for ``spark-submit``; ``local[*]`` by default. If a session is
                given or active, it must be the master of that session.
            spark: the session (``pyspark.sql.SparkSession``) to use; by default the active one, or a new one.
            settings: further Spark settings of a new session; if a session is given or active, they must equal its
                settings.
            py_files: modules for the executors: ``.py`` files, ``.zip`` or ``.egg`` archives, folders of packages,
                URLs. On a cluster, modules that this program has loaded and that are not installed are sent
                automatically.
            open_secs: how long the ``PartitionedSpout.open`` of all spouts together may take; by default there is no
                limit.
            telemetry: where the traces of trees go (``sparkbolt.telemetry.OpenTelemetry``); by default, the standard
                variables of the environment decide (``OTEL_EXPORTER_OTLP_ENDPOINT``); without them, nothing is sent.
            apply: whether to do what needs a decision, if the topology of the checkpoint had another shape: state is
                divided among another number of tasks, or is not used any more.
            savepoint: a savepoint, or a checkpoint that is not in use, of which ``checkpoint`` begins as a copy; a
                later start goes on with ``checkpoint``.
            copy: for the first start with a copy of a checkpoint: "instead", if it goes on instead of the other one,
                which is then never started again; "beside", if both go on.

        Returns:
            The running topology.

        Raises:
            EngineError: Java or Spark is not usable, or a spout could not be opened.
            CheckpointError: the checkpoint is corrupt, is in use, or does not fit the topology; or what starts with it
                needs a decision (``apply``).
        """
        options = {"master": master, "spark": spark, "settings": settings, "py_files": py_files, "open_secs": open_secs}
        begun = {"apply": apply, "savepoint": savepoint, "copy": copy}
        arguments = _given(checkpoint=checkpoint, telemetry=telemetry, **begun, **options)
        check_not_imported(self.name)
        running: RunningTopology = engine("start")(self, **arguments)
        return running

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the picture that ``sparkbolt graph --svg`` draws."""
        return str(engine("topology_html")(self))

    def __repr__(self) -> str:
        """Return one line: the name, and each component with its parallelism."""
        shown = [f"{spec.id} x {spec.parallelism}" for spec in self.components.values()]
        more = f", and {len(shown) - REPR_COMPONENTS_MAX} more" if len(shown) > REPR_COMPONENTS_MAX else ""
        return f"<Topology {self.name!r}: {', '.join(shown[:REPR_COMPONENTS_MAX])}{more}>"

    def rescaled(self, executors: Mapping[str, int]) -> Topology:
        """Return the same topology with other numbers of tasks, by id, of today or before; others are ignored."""
        specs = {}
        for id_, spec in self.components.items():
            before = executors.get(spec.renamed_from or "", spec.parallelism)
            specs[id_] = replace(spec, parallelism=executors.get(id_, before))
        return replace(self, components=specs, known_numbering=None)

    def numbered(self, numbering: Numbering) -> Topology:
        """Return the same topology with the numbers of a checkpoint."""
        return replace(self, known_numbering=numbering)

    def _parts(self) -> tuple[Any, ...]:
        return self.name, self.config, dict(self.components), self.known_numbering

    def __reduce__(self) -> tuple[Callable[[bytes], Topology], tuple[bytes]]:
        """Pickle classes and functions by value if another process could not import them."""
        return _unpickle, (cloudpickle.dumps(self._parts()),)


def _stored_settings(component: Component) -> dict[str, Any]:
    settings = component.stored_settings() if isinstance(component, RuntimeBolt) else {}
    return {"settings": dict(settings)} if settings else {}


def _given(*, checkpoint: str | os.PathLike[str] | None, **options: Any) -> dict[str, Any]:
    """Return the options of a start that were given."""
    place = None if checkpoint is None else os.fspath(checkpoint)
    return {name: value for name, value in {"checkpoint": place, **options}.items() if value}


def _unpickle(data: bytes) -> Topology:
    return Topology(*cloudpickle.loads(data))


class TopologyDeclarer:
    """Collects spouts and bolts; ``build`` checks all of them together. Users have its subclass ``TopologyBuilder``."""

    def __init__(self, name: str, config: Config | None = None) -> None:
        """Begin a topology with a name; without a config all settings have their defaults."""
        if config is not None and not isinstance(config, Config):
            raise ConfigError(f"config={printed(config)}: expected a Config, such as Config(message_timeout_secs=60)")
        self._name = name
        self._config = config if config is not None else Config()
        self._declarations: list[Declaration] = []

    def set_spout(
        self,
        id: str,  # noqa: A002  Storm's name
        spout: Spout | PartitionedSpout,
        parallelism: int = 1,
        *,
        renamed_from: str | None = None,
        **settings: Unpack[ComponentSettings],
    ) -> ComponentHandle:
        """Declare a spout with ``parallelism`` tasks; ``settings`` override the topology's for this component.

        ``renamed_from`` is the id that it had in a checkpoint before, so that it goes on there under its new one.

        Returns:
            Its handle, which grouping methods accept in place of its id.
        """
        target = given_for(spout, settings.get("dead_letters"), self._config.dead_letters)
        declaration = Declaration(
            Role.SPOUT, id, spout, parallelism, dict(settings), dead_letters=target, renamed_from=renamed_from
        )
        self._declarations.append(declaration)
        return ComponentHandle(declaration)

    def set_bolt(
        self,
        id: str,  # noqa: A002  Storm's name
        bolt: BoltBase,
        parallelism: int = 1,
        *,
        renamed_from: str | None = None,
        **settings: Unpack[ComponentSettings],
    ) -> BoltDeclarer:
        """Declare a bolt, like ``set_spout``; call grouping methods on the returned ``BoltDeclarer``, its handle."""
        declaration = Declaration(Role.BOLT, id, bolt, parallelism, dict(settings), renamed_from=renamed_from)
        self._declarations.append(declaration)
        declarer = BoltDeclarer(declaration)
        for component, stream in getattr(bolt, "_subscribes", ()):
            declarer.shuffle_grouping(component, stream)
        return declarer

    @folded
    def build(self) -> Topology:
        """Return the topology; it may be called again after more components were declared.

        Raises:
            InvalidTopology: there are mistakes; the error lists all of them.
        """
        mistakes = mistakes_of(self._name, self._config, self._declarations)
        if mistakes:
            raise InvalidTopology(str(self._name), mistakes)
        specs = {declaration.id: self._spec(declaration) for declaration in self._declarations}
        return Topology(self._name, self._config, specs)

    def _spec(self, declaration: Declaration) -> ComponentSpec:
        config = self._config.with_component(declaration.own_settings())
        if getattr(declaration.component, "ignores_ticks", False):
            config = replace(config, tick_tuple_freq_secs=None)
        target = declaration.dead_letters
        if target is None and declaration.kind == Role.SPOUT:
            target = where_nothing_is_said(declaration.component, config.retry)
        return ComponentSpec(
            declaration.id,
            declaration.component,
            declaration.parallelism,
            declaration.streams(),
            tuple(declaration.subscriptions),
            config,
            way_of(target, declaration.component),
            declaration.renamed_from,
        )


def declarations_of(builder: TopologyDeclarer) -> Mapping[str, Declaration]:
    """Return what a builder has declared so far, by id."""
    return {declaration.id: declaration for declaration in builder._declarations}


def topology_of(given: Topology | TopologyDeclarer) -> Topology:
    """Return a topology, or the topology that a builder builds.

    Raises:
        InvalidTopology: as for ``TopologyBuilder.build``.
        TypeError: the argument is neither a topology nor a builder.

    >>> topology_of("word_count")
    Traceback (most recent call last):
    TypeError: got 'word_count', expected a Topology, or the TopologyBuilder that builds it
    """
    if isinstance(given, TopologyDeclarer):
        return given.build()
    if isinstance(given, Topology):
        return given
    raise TypeError(f"got {printed(given):.60}, expected a Topology, or the TopologyBuilder that builds it")
