"""Subject: prepares a topology so that it can be simulated many times.

The topology is simulated as it is, with three exceptions: its sources are replaced (``sources``), the ledger's log is
compacted every few micro-batches, and a patience of more than a minute becomes a minute. Components are unpickled for
each task and life, as on executors, and their files go into a directory of the subject's own (``rehearsal``). A spout
that would take messages from a real queue, or whose rows Spark reads, must be fed, or is refused. A topology may have
several shapes, among which it changes.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cloudpickle

from sparkbolt.api.components import Component, PartitionedSpout, Spout
from sparkbolt.api.config import Config, did_you_mean
from sparkbolt.api.dead_letters import DeadLetterSink
from sparkbolt.api.inlets import InletSpout
from sparkbolt.api.keyed_state import refusal
from sparkbolt.api.topology import ComponentSpec, Topology
from sparkbolt.api.tuples import DEFAULT_STREAM
from sparkbolt.base.exceptions import pass_on
from sparkbolt.driver.ledger.generations import Generation, Generations
from sparkbolt.driver.transition import moves, transition
from sparkbolt.errors import SparkboltError
from sparkbolt.layout.lane import Lane, lay_out
from sparkbolt.sim.rehearsal import Rehearsal
from sparkbolt.sim.sources import BoundedSpout, FedSpout, SimulatedQueue, Survey, survey, values_row
from sparkbolt.worker.environment import Observer, WorkerEnvironment, main_definitions
from sparkbolt.worker.state.division import moved_stores
from sparkbolt.worker.state.task_state import DictStore
from sparkbolt.worker.worker import context_of

MESSAGES_MAX = 200
"""How many messages of each spout a simulation reads by default."""
CORES = 2
COMPACT_EVERY = 2
PATIENCE_SECS_MAX = 60.0
"""A bolt that fails everything is probed for at most this many seconds: simulating an hour would take long."""

Feed = Mapping[str, Sequence[Mapping[str, Any] | Sequence[Any]]]
"""By spout, or ``spout/stream``, the values of each message, in order or by field."""


class SimulationError(SparkboltError):
    """A topology cannot be simulated in the requested way."""


@dataclass
class Subject:
    """The data that all seeds of a topology share."""

    topology: Topology
    """The simulated topology."""
    lane: Lane
    environment: WorkerEnvironment
    """Without stamps and an observer: each world adds its own with ``environment_with``."""
    surveys: dict[str, Survey]
    """The messages of each ``PartitionedSpout``."""
    queued: dict[int, list[tuple[str, list[Any]]]]
    """The messages of each task of a fed ``Spout``, as (stream, values)."""
    messages_max: int
    rehearsal: Rehearsal
    """The directory for files of components; all runs in one process use it, one after the other."""
    shapes: tuple[Topology, ...] = ()
    """The shapes among which the topology changes, the first one at first; none if it does not change."""

    def environment_with(
        self, stamps: Callable[[], int], observer: Observer | None, sink: DeadLetterSink
    ) -> WorkerEnvironment:
        """Return the environment of a world's workers; ``sink`` takes the dead letters of all spouts."""
        return dataclasses.replace(self.environment, stamps=stamps, observer=observer, letter_sink=lambda _: sink)

    def begun(
        self, shape: int, known: Generations, last_commit: int, *, is_planned: bool = False
    ) -> tuple[Subject, Generations]:
        """Begin as one of the shapes.

        Args:
            shape: Its place among ``shapes``.
            known: The generations of the checkpoint; none if it is new.
            last_commit: The last micro-batch that is committed.
            is_planned: Whether one after it is planned.

        Returns:
            The topology as it goes on, and the generations with the one that begins.

        Raises:
            CheckpointError: It cannot go on as that shape.
        """
        started = transition(self.shapes[shape], CORES, known, last_commit, refusal, is_planned=is_planned)
        started.check("of the simulation", apply=True)
        if started.generations == known:
            return self, known
        environment = _environment(started.lane)
        environment.rehearsal_directory = self.rehearsal.directory
        return (
            dataclasses.replace(self, topology=started.lane.topology, lane=started.lane, environment=environment),
            started.generations,
        )

    def moved(
        self,
        states: Mapping[str, Mapping[int, DictStore]],
        between: tuple[Generation, Generation],
        stamps: Callable[[], int],
    ) -> dict[int, DictStore]:
        """The segments, by dest, with which the second of two generations begins; ``states`` has them by folder."""
        before, after = between
        components, namespace = self.topology.components, self.environment.namespace
        return moved_stores(states[before.folder], moves(before, after), components, stamps, namespace)

    @cached_property
    def positions(self) -> dict[str, int]:
        """The total number of positions of each ``PartitionedSpout``."""
        return {component: sum(end for _, end, _ in found.values()) for component, found in self.surveys.items()}


def subject_of(
    topology: Topology,
    feed: Feed | None = None,
    messages_max: int = MESSAGES_MAX,
    rehearsal_directory: str | None = None,
    later: Sequence[Topology] = (),
) -> Subject:
    """Prepare a topology.

    Args:
        topology: The topology.
        feed: Messages for spouts whose own sources are not to be read.
        messages_max: How many messages of each spout are read.
        rehearsal_directory: Where components write their files; None: a directory that is created, and removed.
        later: Other shapes of the topology, which it has later.

    Raises:
        SimulationError: ``feed`` names no spout, or a spout cannot be read here or would empty a real queue; or a
            change to one of ``later`` cannot be simulated.
    """
    for one in later:
        _check_shape(topology, one)
    fed = _fed_rows(topology, feed or {})
    _refuse_queues(topology, fed)
    rehearsal = Rehearsal(rehearsal_directory)
    surveys: dict[str, Survey] = {}
    specs: dict[str, ComponentSpec] = {}
    for spec in topology.components.values():
        component = _source_of(spec, fed.get(spec.id)) if spec.is_spout else spec.component
        config = _shortened(spec.config)
        specs[spec.id] = dataclasses.replace(spec, component=component, config=config)
    config = _shortened(topology.config)
    draft = Topology(topology.name, config, specs)
    lane = lay_out(draft, CORES)
    for spec in draft.spouts:
        if isinstance(spec.component, PartitionedSpout):
            found, whole = _survey(lane, spec, messages_max, rehearsal.directory)
            surveys[spec.id] = found
            if not whole:
                specs[spec.id] = dataclasses.replace(spec, component=BoundedSpout(spec.component, found))
    simulated = Topology(topology.name, config, specs)
    lane = lay_out(simulated, CORES)
    queued = {
        number: fed[spec.id][index :: spec.parallelism]
        for spec in simulated.spouts
        if isinstance(spec.component, SimulatedQueue)
        for index, number in enumerate(simulated.tasks(spec.id))
    }
    environment = _environment(lane)
    environment.rehearsal_directory = rehearsal.directory
    subject = Subject(simulated, lane, environment, surveys, queued, messages_max, rehearsal)
    if later:
        sources = {spec.id: spec for spec in simulated.spouts}
        subject.shapes = (simulated, *(_with_sources(one, sources) for one in later))
        generations = Generations()
        for shape in range(len(subject.shapes)):
            generations = subject.begun(shape, generations, shape - 1)[1]  # says what is refused
    return subject


def _check_shape(topology: Topology, later: Topology) -> None:
    """Check that a simulation can follow the change to another shape, and back.

    Raises:
        SimulationError: It cannot: its checkers know messages and kept state by the ids of components, and trees by
            the tasks that start them.
    """
    instead = "TopologyTestDriver.from_checkpoint tries such a change on kept state"
    if _followed(topology) != _followed(later):
        raise SimulationError(
            "a topology of later= has other spouts, another number of their tasks, or other bolts that keep state or "
            f"start trees: a simulation changes the tasks and the settings of the same bolts; {instead}"
        )
    if topology.feedback_subscriptions or later.feedback_subscriptions:
        raise SimulationError(f"a topology with later= has a loop (feedback=True), which no change follows; {instead}")


def _followed(topology: Topology) -> dict[str, int | None]:
    """The components that each shape has; by id the number of tasks of spouts."""
    starters = lay_out(topology, CORES).starters
    return {
        spec.id: spec.parallelism if spec.is_spout else None
        for spec in topology.components.values()
        if spec.is_spout or spec.keeps_state or spec.id in starters
    }


def _with_sources(topology: Topology, sources: Mapping[str, ComponentSpec]) -> Topology:
    """A later shape, with the sources and the limits of the first."""
    specs = {
        spec.id: dataclasses.replace(
            spec,
            component=sources[spec.id].component if spec.id in sources else spec.component,
            config=_shortened(spec.config),
        )
        for spec in topology.components.values()
    }
    return Topology(topology.name, _shortened(topology.config), specs)


def _shortened(config: Config) -> Config:
    """Return the settings with limits for times that are too long for a simulation."""
    patience_secs = min(config.outage_patience_secs, PATIENCE_SECS_MAX)
    return dataclasses.replace(config, compact_every=COMPACT_EVERY, outage_patience_secs=patience_secs)


def _environment(lane: Lane) -> WorkerEnvironment:
    return WorkerEnvironment(
        lane=lane,
        components={name: dumps(spec.component) for name, spec in lane.topology.components.items()},
        unpickle=pickle.loads,
        clock=lambda: 0.0,
        stamps=lambda: 1,
        namespace=main_definitions(),
    )


def dumps(component: Component) -> bytes:
    """Pickle a component for this process: classes by name if possible, which loads much faster."""
    try:
        data = pickle.dumps(component, protocol=5)
        pickle.loads(data)
    except Exception:  # noqa: BLE001  pickling calls user code; if something is wrong, cloudpickle reports it
        by_value: bytes = cloudpickle.dumps(component)
        return by_value
    return data


def _fed_rows(topology: Topology, feed: Feed) -> dict[str, list[tuple[str, list[Any]]]]:
    spouts = {spec.id: spec for spec in topology.spouts}
    fed: dict[str, list[tuple[str, list[Any]]]] = {}
    for name, rows in feed.items():
        component, _, stream = name.partition("/")
        if component not in spouts:
            hint = did_you_mean(component, spouts) or f": its spouts are {list(spouts)}"
            raise SimulationError(f"topology {topology.name!r} has no spout {component!r} to be fed{hint}")
        try:
            fields = spouts[component].stream(stream or DEFAULT_STREAM).fields
            mine = [(stream or DEFAULT_STREAM, values_row(component, fields, row)) for row in rows]
        except (KeyError, ValueError) as error:
            raise SimulationError(str(error.args[0])) from error
        fed.setdefault(component, []).extend(mine)
    return fed


def _refuse_queues(topology: Topology, fed: Mapping[str, object]) -> None:
    for spec in topology.spouts:
        if isinstance(spec.component, InletSpout) and spec.id not in fed:
            raise SimulationError(
                f"spout {spec.id!r} is a {type(spec.component).__name__}: Spark reads its rows, and a simulation runs "
                f"without Spark. Give it rows with feed={{{spec.id!r}: [...]}} (on the command line: --feed "
                f"{spec.id}=FILE), which stand for a file then"
            )
        if isinstance(spec.component, Spout) and not spec.component.rehearsable and spec.id not in fed:
            raise SimulationError(
                f"spout {spec.id!r} is a {type(spec.component).__name__}: a simulation would take messages out of its "
                f"queue, and nobody would ever see them. Give it messages with feed={{{spec.id!r}: [...]}} (on the "
                f"command line: --feed {spec.id}=FILE), which stand for a queue then"
            )


def _source_of(spec: ComponentSpec, rows: list[tuple[str, list[Any]]] | None) -> Component:
    if rows is None:
        return spec.component
    if isinstance(spec.component, Spout):
        return SimulatedQueue(spec.component.outputs)
    assert isinstance(spec.component, PartitionedSpout)
    return FedSpout(spec.component, [values for _, values in rows], spec.parallelism)


def _survey(lane: Lane, spec: ComponentSpec, messages_max: int, rehearsal_directory: str) -> tuple[Survey, bool]:
    spout = pickle.loads(dumps(spec.component))
    try:
        context = context_of(lane, lane.topology.tasks(spec.id)[0], rehearsal_directory)
        return survey(spout, context, messages_max)
    except BaseException as error:  # user code, which may even exit
        pass_on(error)
        raise SimulationError(
            f"spout {spec.id!r} cannot be read here ({type(error).__name__}: {error}): make its source available, "
            f"or give it messages with feed={{{spec.id!r}: [...]}} (on the command line: --feed {spec.id}=FILE)"
        ) from error
