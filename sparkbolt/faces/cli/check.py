"""``sparkbolt check``: shows how a topology is laid out, which state each bolt keeps and why, and likely mistakes.

All facts come from ``layout.lane`` and the component specs; this module decides nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from json import dumps
from typing import Any

from sparkbolt.api.committers import CommittingBolt
from sparkbolt.api.components import BoltBase, Component, PartitionedSpout, Spout, defines_flush
from sparkbolt.api.config import COMPONENT_KEYS
from sparkbolt.api.function_bolts import FunctionBolt
from sparkbolt.api.inlets import InletSpout
from sparkbolt.api.runtime_bolts import RuntimeBolt
from sparkbolt.api.statefulness import keeps_state, storing_methods
from sparkbolt.api.topology import ComponentSpec, Topology
from sparkbolt.api.tuples import DEFAULT_STREAM
from sparkbolt.base.locations import local_directory
from sparkbolt.control.intent import CONTROL_FILE, Intent
from sparkbolt.control.start_shape import shape_of_start
from sparkbolt.driver.ledger.agreement import InletSources
from sparkbolt.driver.ledger.generations import Generations, SparkLog
from sparkbolt.driver.ledger.origin import check_not_succeeded, origin_of
from sparkbolt.driver.transition import Effect, ShapeStep
from sparkbolt.errors import CheckpointError, InvalidTopology
from sparkbolt.faces.cli.command_arguments import CountOrNone
from sparkbolt.faces.cli.program import EXIT_FAILED, EXIT_FINISHED
from sparkbolt.faces.cli.resolver import checkpoint_of, topology_of
from sparkbolt.faces.cli.tables import aligned
from sparkbolt.faces.cli.texts import show
from sparkbolt.faces.drawing.stages import StageView, stages_of
from sparkbolt.layout.lane import FUSIBLE, Lane, lay_out
from sparkbolt.spark.checkpoint_files import open_files

_READ_ONLY = (str, int, float, bool, bytes, type(None), tuple, frozenset)


def check(topology: str, *, checkpoint: str | None = None, cores: CountOrNone = None, json: bool = False) -> int:
    """Show the mistakes of a topology, and how Spark runs it.

    The levels of a topology run one after the other in each micro-batch. A fused bolt runs in the tasks of its sender.

    Args:
        topology: its code, such as word_count:topology or word_count.py; or the name of a topology
            that run has started.
        checkpoint: also show what a start with this checkpoint would do, and whether it is refused (exit code 1); a
            directory, or the name of a topology.
        cores: plan for N cores (default: the cores of this machine).
        json: print one JSON object.
    """
    try:
        loaded = topology_of(topology)
    except InvalidTopology as error:
        show([dumps({"name": error.name, "mistakes": error.mistakes}, indent=2) if json else str(error)])
        return EXIT_FAILED
    cores = cores or os.cpu_count() or 1
    start = None if checkpoint is None else start_with(loaded, checkpoint_of(checkpoint), cores)
    examination = replace(examine(loaded, cores), start=start)
    show([dumps(examination.to_json(), indent=2)] if json else report_lines(examination))
    return EXIT_FAILED if start is not None and start.is_refused else EXIT_FINISHED


@dataclass(frozen=True)
class Subscribed:
    """One subscription of a bolt."""

    source: str
    stream: str
    grouping: str


@dataclass(frozen=True)
class Examined:
    """The facts of one component."""

    id: str
    kind: str
    parallelism: int
    level: int
    """The level in whose stage it runs; 0 is the source."""
    fused_into: str | None
    """The component with which it is fused, and in whose stage it runs; None if it has its own stage."""
    fusion: str
    """Why it is fused or not; empty for a spout."""
    stateful: bool
    state: str
    """Why it keeps state or not; empty for a spout."""
    streams: dict[str, list[str]]
    subscriptions: tuple[Subscribed, ...]


@dataclass(frozen=True)
class StartExamined:
    """What a start with a checkpoint would do."""

    checkpoint: str
    is_new: bool
    """Whether the checkpoint holds nothing, so that the topology starts from the beginning."""
    steps: tuple[ShapeStep, ...] = ()
    """What would change, and how; none if the topology has the shape that the checkpoint knows."""
    mistake: str | None = None
    """Why the checkpoint, or an output directory, cannot be used, whatever the topology's shape is."""
    copy: str | None = None
    """The decision that a copy of another checkpoint needs at its first start."""
    is_decided: bool = False
    """Whether operators have decided it, by a rebalance."""
    overruled: tuple[str, ...] = ()
    """The numbers of tasks in the code that do not count, a sentence each."""

    @property
    def is_refused(self) -> bool:
        """Whether a start would be refused, also with ``--apply``."""
        return self.mistake is not None or any(step.effect == Effect.REFUSED for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        steps = [{**asdict(step), "needs_apply": step.needs_decision and not self.is_decided} for step in self.steps]
        known = {"checkpoint": self.checkpoint, "is_new": self.is_new, "is_refused": self.is_refused}
        return {**known, "steps": steps, "mistake": self.mistake, "copy": self.copy, "overruled": [*self.overruled]}

    def lines(self) -> Iterator[str]:
        """As plain text."""
        yield f"checkpoint {self.checkpoint}"
        if self.mistake is not None:
            yield f"  a start is refused: {self.mistake}"
        elif self.is_refused:
            yield "  a start is refused: mend this, or use a new checkpoint directory (which starts from the beginning)"
            yield from (f"  - {step}" for step in self.steps if step.effect == Effect.REFUSED)
        elif self.steps:
            yield "  a start goes on from it with another shape"
            yield from (f"  - {step}" for step in self.steps)
            if self.is_decided:
                yield "  an operator has decided it: sparkbolt rebalance"
            elif any(step.needs_decision for step in self.steps):
                yield "  what moves or goes needs your decision: sparkbolt run with --apply"
        else:
            yield f"  a start {'begins with it, because it is empty' if self.is_new else 'continues from it'}"
        yield from (f"  {overruled}" for overruled in self.overruled)
        if self.copy is not None:
            yield f"  {self.copy}"


def start_with(topology: Topology, directory: str, cores: int) -> StartExamined:
    """Compare a topology with a checkpoint as a start does; for a local directory neither Spark nor Java starts.

    Raises:
        WrongUseError: there is no such directory.
    """
    # Imported here, since they import pyspark.
    from sparkbolt.spark.checkpoint import identity_in
    from sparkbolt.spark.output_ownership import OutputOwnership
    from sparkbolt.spark.succession import undecided
    from sparkbolt.spark.versions import check_not_older, installed

    directory = local_directory(directory) or directory  # claims on output directories have absolute paths
    where = f"checkpoint {directory}"
    try:
        files = open_files(directory)
        check_not_older(files, installed(), where)
        check_not_succeeded(files, where)
        origin = origin_of(files, where)
        generations = Generations.read(files, where)
        log, intent = SparkLog(files, generations), Intent.loads(files.read(CONTROL_FILE), where)
        inlets = InletSources.read(files, generations)
        known = topology, intent, cores, generations, log.last_commit
        shape = shape_of_start(*known, inlets, is_planned=log.is_planned)
        is_new = shape.started.is_new
        owned = OutputOwnership(topology, identity_in(files) or "", directory, is_lasting=True, is_new=is_new)
        copy = None if origin is None or origin.role is not None else undecided(topology, files, origin, where)
        mistake = next(owned.refusals(), None)
        return StartExamined(directory, is_new, shape.started.steps, mistake, copy, shape.is_decided, shape.overruled)
    except CheckpointError as error:
        return StartExamined(directory, is_new=False, mistake=str(error))


@dataclass(frozen=True)
class Examination:
    """All that ``check`` reports."""

    name: str
    cores: int
    spark_partitions: int
    ackers: int
    components: tuple[Examined, ...]
    stages: tuple[StageView, ...]
    transactional: dict[str, str] | None
    """By bolt with effects outside, the promise about them; None: the topology is not transactional."""
    warnings: tuple[str, ...]
    start: StartExamined | None = None
    """Whether a checkpoint fits; None if none was named."""

    @property
    def floor_secs(self) -> float:
        """About how many seconds a micro-batch takes at least."""
        return sum(stage.secs for stage in self.stages)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        stages = [{"name": stage.name, **asdict(stage)} for stage in self.stages]
        floor = round(self.floor_secs, 2)
        start = None if self.start is None else self.start.to_json()
        return {**asdict(self), "start": start, "stages": stages, "micro_batch_floor_secs": floor, "mistakes": []}


def examine(topology: Topology, cores: int) -> Examination:
    """Lay a topology out for a number of cores, and collect all facts and warnings."""
    lane = lay_out(topology, cores)
    return Examination(
        name=topology.name,
        cores=cores,
        spark_partitions=lane.spark_partitions,
        ackers=len(lane.acker_dests),
        components=tuple(_examined(spec, lane) for spec in topology.components.values()),
        stages=stages_of(lane),
        transactional=_effects(topology) if topology.config.transactional else None,
        warnings=tuple(_warnings(lane, cores)),
    )


def _effects(topology: Topology) -> dict[str, str]:
    """By bolt: the promise of a transactional topology about its effects outside."""
    promises = {
        "repeatable": "effects='repeatable': its effects may happen more than once, also for tuples that fail",
        "none": "effects='none': it has no effect but its state",
    }
    found = {}
    for spec in topology.bolts:
        if isinstance(spec.component, CommittingBolt):
            found[spec.id] = "committer: its rows are written once, after their micro-batch succeeds"
        elif spec.config.effects != "once":
            found[spec.id] = promises[spec.config.effects]
    return found


def _examined(spec: ComponentSpec, lane: Lane) -> Examined:
    stateful = spec.keeps_state
    return Examined(
        id=spec.id,
        kind=kind_of(spec.component),
        parallelism=spec.parallelism,
        level=lane.stage_of(spec.id),
        fused_into=lane.fused_into.get(spec.id),
        fusion="" if spec.is_spout else fusion_reason(spec, lane),
        stateful=stateful,
        state="" if spec.is_spout else state_reason(spec.component),
        streams={stream.name: list(stream.fields) for stream in spec.streams},
        subscriptions=tuple(Subscribed(sub.source, sub.stream, sub.describe()) for sub in spec.subscriptions),
    )


def kind_of(component: Component) -> str:
    """The kind of a component in words: its class, and whether that is a spout or a bolt.

    >>> from sparkbolt import bolt
    >>> kind_of(bolt(outputs=["word"])(lambda tup: None))
    'function bolt'
    """
    if type(component) is FunctionBolt:
        return "function bolt"
    if isinstance(component, PartitionedSpout):
        return f"{type(component).__name__} (partitioned spout)"
    return f"{type(component).__name__} ({'spout' if isinstance(component, Spout) else 'bolt'})"


def state_reason(component: Component) -> str:
    """Why a bolt keeps state from one micro-batch to the next, or why it does not."""
    if isinstance(component, FunctionBolt):
        return "stateless: it is a function"
    if isinstance(component, BoltBase) and component.stateless:
        return "stateless: its class has stateless = True"
    if not keeps_state(component):
        return "stateless: it has no attributes, and its class never sets one"
    if hasattr(component, "init_state"):
        return "keeps state: it has init_state"
    storing = storing_methods(type(component))
    if isinstance(component, RuntimeBolt):
        return "keeps state: its windows" + (f", and {_listed(storing)} may store attributes" if storing else "")
    if storing:
        return f"keeps state: {_listed(storing)} may store attributes"
    own = sorted(vars(component))
    return f"keeps state: it was built with {_listed(own)}" if own else "keeps state: its class may store attributes"


def fusion_reason(spec: ComponentSpec, lane: Lane) -> str:
    """Why a bolt runs in its producer's stage, or why it does not."""
    if spec.id in lane.fused_into:
        return (
            f"runs in the stage of {lane.fused_into[spec.id]!r}: it is stateless, and any task can process its tuples"
        )
    if not spec.config.fuse:
        return "runs by itself: fuse is False"
    if spec.keeps_state:
        return "runs by itself: it keeps state"
    if any(sub.feedback for sub in spec.subscriptions):
        return "runs by itself: it gets tuples of the micro-batch before, by a subscription with feedback"
    sources = {sub.source for sub in spec.subscriptions}
    if len(sources) > 1:
        return f"runs by itself: it has {len(sources)} inputs"
    for sub in spec.subscriptions:
        if type(sub.grouping) not in FUSIBLE:
            return f"runs by itself: its grouping {sub.grouping.describe()} chooses the task"
    if spec.config.tick_tuple_freq_secs is not None:
        return "runs by itself: it gets tick tuples"
    if defines_flush(spec.component):
        return "runs by itself: its flush runs once per task and micro-batch (see flush_anywhere)"
    return "runs by itself"


def _warnings(lane: Lane, cores: int) -> Iterator[str]:
    topology = lane.topology
    for spec in topology.components.values():
        for key in _without_effect(spec, topology):
            yield f"{spec.id}: {key} has no effect on {_a(spec)}; remove it"
        if spec.parallelism > cores:
            yield f"{spec.id}: {spec.parallelism} tasks on {cores} cores: some of them run one after another"
        for stream in spec.streams:
            if stream.name != DEFAULT_STREAM and not topology.consumers(spec.id, stream.name):
                yield f"{spec.id}: no bolt subscribes to its stream {stream.name!r}"
        if not spec.is_spout:
            yield from _bolt_warnings(spec)
        fed = _fed(spec, lane)
        if fed < spec.parallelism:
            producer = lane.fused_into[spec.id]
            yield (
                f"{spec.id}: only {fed} of its {spec.parallelism} tasks {'gets' if fed == 1 else 'get'} tuples, "
                f"because it is fused with {producer!r}, whose tasks feed one task each. Set fuse=False to use all "
                f"tasks, or give {producer!r} more tasks"
            )
    if topology.config.acker_tasks == 0:
        yield "acker_tasks is 0: tuples are not tracked, and failed tuples are lost"
    target = topology.config.micro_batch_target_ms / 1000
    if topology.config.enable_message_timeouts and topology.config.message_timeout_secs < 3 * target:
        yield (
            f"message_timeout_secs is {topology.config.message_timeout_secs:g}, and the target of a micro-batch "
            f"is {target:g} s: trees that need more than one micro-batch may time out"
        )


def _bolt_warnings(spec: ComponentSpec) -> Iterator[str]:
    component = spec.component
    if not keeps_state(component):
        if spec.config.tick_tuple_freq_secs is not None:
            yield f"{spec.id}: it is stateless, but runs by itself because of tick_tuple_freq_secs"
        return
    own = vars(component)
    unwritten = own and not hasattr(component, "init_state") and not storing_methods(type(component))
    unwritten = unwritten and not isinstance(component, RuntimeBolt)
    if unwritten and all(isinstance(value, _READ_ONLY) for value in own.values()):
        yield (
            f"{spec.id}: it seems to only read {_listed(sorted(own))}: set stateless = True in its class to save its "
            "state and to let it run in its producer's stage"
        )
    shuffled = any(type(sub.grouping) in FUSIBLE for sub in spec.subscriptions)
    if shuffled and not unwritten and spec.parallelism > 1:
        yield (
            f"{spec.id}: it keeps state and its input is shuffled: any of its {spec.parallelism} tasks may get a "
            "tuple, so equal values reach different tasks"
        )


def _fed(spec: ComponentSpec, lane: Lane) -> int:
    """How many tasks of a component receive tuples: a fused bolt has no more such tasks than its producer."""
    fused_into = lane.fused_into.get(spec.id)
    return (
        spec.parallelism
        if fused_into is None
        else min(spec.parallelism, _fed(lane.topology.components[fused_into], lane))
    )


def _without_effect(spec: ComponentSpec, topology: Topology) -> list[str]:
    """The names of a component's own settings that have no effect on it."""
    meaningless = (
        {"tick_tuple_freq_secs", "fuse"}
        if spec.is_spout
        else {"max_spout_pending", "max_attempts", "max_hops", "retry", "trace"}
    )
    if getattr(spec.component, "starts_trees", False):
        meaningless = {"fuse", "trace"}
    if isinstance(spec.component, Spout):
        meaningless |= {"max_attempts"}
    if isinstance(spec.component, InletSpout):
        meaningless |= {"max_spout_pending"}
    names = {field.name for field in fields(spec.config)} & COMPONENT_KEYS & meaningless
    return sorted(name for name in names if getattr(spec.config, name) != getattr(topology.config, name))


def _a(spec: ComponentSpec) -> str:
    if isinstance(spec.component, Spout):
        return "a spout that cannot read again"
    if isinstance(spec.component, InletSpout):
        return "a spout that Spark reads: the options of its source limit a micro-batch, such as maxFilesPerTrigger"
    return "a spout" if spec.is_spout else "a bolt"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")


def report_lines(examination: Examination) -> Iterator[str]:
    """The lines of the examination as plain text."""
    tasks = sum(component.parallelism for component in examination.components)
    yield f"topology {examination.name}: no mistakes, {len(examination.components)} components, {tasks} tasks"
    yield from ("", "components")
    yield from _indented(_component_rows(examination))
    yield from ("", "stages")
    rows = []
    for stage in examination.stages:
        kind = "stateful" if stage.stateful else "stateless" if stage.level else ""
        cost = f"about {stage.secs:g} s" if stage.secs else ""
        rows.append((stage.name, ", ".join(stage.components), kind, cost))
    yield from _indented(rows)
    yield (
        f"  spark_partitions: {examination.spark_partitions}, cores: {examination.cores}, "
        f"acker tasks: {examination.ackers}"
    )
    yield f"  a micro-batch takes about {examination.floor_secs:.2g} s or more with little data"
    bolts = [component for component in examination.components if component.fusion]
    if examination.transactional is not None:
        yield from ("", "transactional: each message counts exactly once in state and in emitted tuples")
        yield from _indented(list(examination.transactional.items()))
    yield from ("", "state")
    yield from _indented([(component.id, component.state) for component in bolts])
    yield from ("", "fusion")
    yield from _indented([(component.id, component.fusion) for component in bolts])
    if examination.warnings:
        yield from ("", "warnings")
        yield from (f"  - {warning}" for warning in examination.warnings)
    if examination.start is not None:
        yield from ("", *examination.start.lines())


def _component_rows(examination: Examination) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for component in examination.components:
        gets = [
            f"{sub.source}{'' if sub.stream == DEFAULT_STREAM else '/' + sub.stream} {sub.grouping}"
            for sub in component.subscriptions
        ]
        emits = [
            f"{'' if name == DEFAULT_STREAM else name}({', '.join(columns)})"
            for name, columns in component.streams.items()
            if columns
        ]
        arrow = "<- " + "; ".join(gets) if gets else ""
        out = "-> " + " ".join(emits) if emits else ""
        rows.append((component.id, f"x{component.parallelism}", component.kind, arrow, out))
    return rows


def _indented(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    return (f"  {line}" for line in aligned(rows))
