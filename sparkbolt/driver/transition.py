"""Continuation: how a topology goes on from a checkpoint whose topology had another shape.

``transition`` compares the shapes, and decides step by step what goes on, begins empty, moves, goes, or is refused. It
reads no state and starts nothing, so ``sparkbolt check`` and a start decide the same. What it decides becomes the next
generation of the checkpoint (``ledger.generations``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparkbolt.api.groupings import LocalOrShuffleGrouping, NoneGrouping, ShuffleGrouping
from sparkbolt.api.numbering import Numbering
from sparkbolt.api.runtime_bolts import RuntimeBolt
from sparkbolt.api.topology import FEEDBACK, ComponentKind, ComponentSpec, Topology
from sparkbolt.base.words import Word
from sparkbolt.driver.ledger.agreement import InletSources
from sparkbolt.driver.ledger.generations import FIRST_FOLDER, Generation, Generations
from sparkbolt.driver.ledger.ledger_settings import described
from sparkbolt.errors import CheckpointError
from sparkbolt.layout.lane import Lane, lay_out

Divisible = Callable[[ComponentSpec, int, int], str | None]
"""``keyed_state.refusal``: why the state of a bolt cannot be divided among another number of tasks; None if it may."""

NO_INLETS = InletSources()


class Effect(Word):
    """What a transition does with one part of a topology."""

    GOES_ON = "goes on"
    """As it was, or with what a change leaves as it is."""
    BEGINS = "begins empty"
    MOVES = "moves"
    """Its state is divided anew; needs a decision."""
    GOES = "goes"
    """What the checkpoint has of it is not used any more; needs a decision."""
    REFUSED = "is refused"


@dataclass(frozen=True)
class ShapeStep:
    """What a transition does with one part of a topology, and why.

    >>> str(ShapeStep("bolt 'count'", Effect.MOVES, "it has 5 tasks and had 2: its state is divided by key"))
    "bolt 'count' moves: it has 5 tasks and had 2: its state is divided by key"
    """

    what: str
    effect: Effect
    why: str

    @property
    def needs_decision(self) -> bool:
        """Whether a start does it only if it was decided (``--apply``)."""
        return self.effect in (Effect.MOVES, Effect.GOES)

    def __str__(self) -> str:
        """Return all of it as a sentence."""
        return f"{self.what} {self.effect}: {self.why}"


@dataclass(frozen=True)
class Move:
    """The state of one bolt that comes from the Spark folder of one generation into that of the next."""

    component: str
    """Its id in the next generation."""
    source: int
    """The number of Spark's operator that has it."""
    target: int
    """The place of its level among the levels that keep state, in the next generation; from 0."""
    before: tuple[int, ...]
    """The dest of each task that had it, by index."""
    after: tuple[int, ...]
    """The dest of each task that gets it, by index."""

    @property
    def divides(self) -> bool:
        """Whether it is divided among another number of tasks."""
        return len(self.before) != len(self.after)


@dataclass(frozen=True)
class Continuation:
    """How a topology starts with a checkpoint."""

    lane: Lane
    generations: Generations
    """Those of the checkpoint, with the one that starts."""
    steps: tuple[ShapeStep, ...] = ()
    """What changes; none if the shape is the same, or the checkpoint new."""
    is_new: bool = False
    """Whether the checkpoint is new."""

    @property
    def refusals(self) -> tuple[ShapeStep, ...]:
        """The steps that are refused."""
        return tuple(step for step in self.steps if step.effect == Effect.REFUSED)

    @property
    def decisions(self) -> tuple[ShapeStep, ...]:
        """The steps that need a decision."""
        return tuple(step for step in self.steps if step.needs_decision)

    def check(self, directory: str, *, apply: bool) -> None:
        """Check that a start may go on with it.

        Args:
            directory: the checkpoint, for messages.
            apply: whether the steps that need a decision were decided.

        Raises:
            CheckpointError: a step is refused, or needs a decision.
        """
        if self.refusals:
            raise CheckpointError(
                f"checkpoint {directory} was begun by a topology that differs:{_listed(self.refusals)}\nChange the "
                "topology so that it can go on, or start it with a new checkpoint directory (which starts from the "
                "beginning)"
            )
        if self.decisions and not apply:
            raise CheckpointError(
                f"checkpoint {directory} was begun by a topology that differs, and this needs your decision:"
                f"{_listed(self.decisions)}\nStart it with --apply (Topology.start(apply=True)) to do this, or change "
                "the topology back; nothing has changed yet"
            )

    def check_rebalance(self) -> None:
        """Check that a running topology may go on with it.

        Raises:
            CheckpointError: a step is refused.
        """
        if self.refusals:
            raise CheckpointError(
                f"the topology cannot be rebalanced like this, and goes on as it is:{_listed(self.refusals)}"
            )


def _listed(steps: Sequence[ShapeStep]) -> str:
    return "".join(f"\n  - {step}" for step in steps)


def transition(
    topology: Topology,
    cores: int,
    generations: Sequence[Generation],
    last_commit: int,
    divisible: Divisible,
    *,
    spark_partitions: int | None = None,
    inlets: InletSources = NO_INLETS,
    is_planned: bool = False,
) -> Continuation:
    """Decide how a topology starts with a checkpoint.

    Args:
        topology: the topology that starts.
        cores: how many cores Spark has.
        generations: those of the checkpoint, oldest first; none if it is new.
        last_commit: the last micro-batch that is committed; -1 if there is none.
        divisible: whether the state of a bolt may be divided.
        spark_partitions: the wanted number of partitions; None: any will do.
        inlets: what Spark's log says about the sources of inlets.
        is_planned: whether Spark's log has a micro-batch after the last one that is committed.
    """
    known, number = list(generations), len(generations) and generations[-1].number + 1
    tried: dict[str, str] = {}
    while known:
        lane = _continued(topology, cores, known[-1], spark_partitions)
        if lane is not None:
            return Continuation(lane, Generations([*known[:-1], recorded(known[-1], lane)]))
        if last_commit >= known[-1].base:
            return _changed(
                topology, cores, known, number, last_commit, divisible, spark_partitions, inlets, tried, is_planned
            )
        # Nothing was committed in it, so the topology goes on from the one before; it is known who was called how.
        names = {now: was for was, now in known.pop().renamed.items()}
        tried = {**names, **{now: names.get(was, was) for now, was in tried.items()}}
    wanted = {"spark_partitions": spark_partitions} if spark_partitions else None
    first = Generation(number, folder=f"{FIRST_FOLDER}-{number}" if number else FIRST_FOLDER)
    lane = lay_out(topology, cores, wanted)
    return Continuation(lane, Generations([recorded(first, lane)]), is_new=True)


def recorded(generation: Generation, lane: Lane) -> Generation:
    """A generation as it is stored, with its lane."""
    return replace(
        generation,
        fingerprint=_plain(lane.topology.fingerprint()),
        placement=_plain(lane.placement()),
        numbering=lane.topology.numbering,
        ledger=_plain(described(lane)),
    )


def _plain(body: Any) -> Any:
    """As it comes back from its file."""
    return json.loads(json.dumps(body))


def _continued(topology: Topology, cores: int, generation: Generation, partitions: int | None) -> Lane | None:
    """The lane of a topology that has the shape of a generation; None if it has another."""
    placement = generation.placement
    if _plain(topology.fingerprint()) != generation.fingerprint:
        return None
    if partitions not in (None, placement["spark_partitions"]):
        return None
    lane = lay_out(topology.numbered(generation.numbering), cores, placement)
    return lane if lane.placement()["stateful"] == placement["stateful"] else None


def _changed(
    topology: Topology,
    cores: int,
    known: Sequence[Generation],
    number: int,
    last_commit: int,
    divisible: Divisible,
    partitions: int | None,
    inlets: InletSources,
    tried: Mapping[str, str],
    is_planned: bool,
) -> Continuation:
    """``tried``: by id in generations that have committed nothing, the id in the one before them.

    If a plan is dropped (``generations.keep``), the generation needs a folder of its own: a driver that was taken for
    dead may still commit that plan, and its commit must not count for another plan of the same number.
    """
    before = known[-1]
    renamed = _renamed(topology, before.fingerprint["components"], tried)
    numbering = Numbering.of(topology.components, before.numbering.renamed(renamed))
    topology = topology.numbered(numbering)
    stays = lay_out(topology, cores, before.placement)
    steps = list(_steps(topology, before, renamed, stays, divisible))
    base = last_commit + 1
    here = recorded(Generation(number, base, before.folder, before.first, renamed=renamed), stays)
    drops_plan = is_planned and (number > before.number + 1 or here.lacks_some_of(before)) and not stays.inlets
    if partitions is None and not drops_plan and _same_places(before, stays, renamed):
        lane, folder, first = stays, before.folder, before.first
    else:
        wanted = {"spark_partitions": partitions} if partitions else None
        lane, folder, first = lay_out(topology, cores, wanted), f"{FIRST_FOLDER}-{number}", base
        was, now = before.placement["spark_partitions"], lane.spark_partitions
        if was != now:
            steps.append(ShapeStep("the topology", Effect.GOES_ON, f"in {now} partitions of Spark, and not in {was}"))
    generation = recorded(Generation(number, base, folder, first, renamed=renamed), lane)
    if generation.moves:
        steps += _inlet_refusals(before, generation, inlets)
    return Continuation(lane, Generations([*known, generation]), tuple(steps))


def _inlets_of(generation: Generation, named_by: Generation) -> list[str]:
    """The inlets of a generation, in the order of their sources, by their ids in another generation."""
    kinds = {id_: one["kind"] for id_, one in generation.fingerprint["components"].items()}
    names = sorted(id_ for level in generation.placement["stateful"] for id_ in level if "spout" in kinds[id_])
    owners = named_by.numbering.owners
    return [owners[generation.numbering.tasks[name][0]][0] for name in names]


def source_places(before: Generation, after: Generation, sources: int) -> Sequence[int | None]:
    """By place of an inlet's source in a generation: its place in the one before, which had ``sources``; None: new."""
    had, has = _inlets_of(before, after), _inlets_of(after, after)
    if had == has:
        return range(sources)
    return [had.index(name) if name in had else None for name in has]


def _inlet_refusals(before: Generation, after: Generation, inlets: InletSources) -> Iterator[ShapeStep]:
    """Why the inlets of a generation cannot go on in a new folder of Spark's (``spark.inlet_moves``)."""
    had, has = _inlets_of(before, after), _inlets_of(after, after)
    for name in has:
        if inlets.keep_state:
            why = "Spark keeps state of its DataFrame, such as that of dropDuplicates, which cannot move: leave the "
            yield ShapeStep(f"spout {name!r}", Effect.REFUSED, f"{why}tasks and the levels of bolts as they were")
        elif had != has and inlets.count != len(had):
            why = "the DataFrames of the topology have several sources, and nobody knows which of them are whose: "
            yield ShapeStep(f"spout {name!r}", Effect.REFUSED, f"{why}leave the SparkSpouts as they were")


def _renamed(topology: Topology, had: Collection[str], tried: Mapping[str, str]) -> dict[str, str]:
    """By id that a component had: the id that it has."""
    renamed: dict[str, str] = {}
    for id_, spec in topology.components.items():
        declared = spec.renamed_from or ""
        was = next((one for one in (declared, tried.get(declared), tried.get(id_)) if one in had), None)
        is_free = was is not None and id_ not in had and was not in topology.components
        if was is not None and is_free and (was not in renamed or was == declared):
            renamed[was] = id_
    return renamed


def _same_places(before: Generation, lane: Lane, renamed: Mapping[str, str]) -> bool:
    """Whether each task that keeps state has the place that it had, so that Spark goes on in the same folder."""
    topology, stateful = lane.topology, lane.placement()["stateful"]
    if len(before.placement["stateful"]) != len(stateful):
        return False
    if [renamed.get(id_, id_) for id_ in _inlets_of(before, before)] != list(lane.inlets):
        return False  # Spark knows their sources by place
    spouts = [id_ for id_, one in before.fingerprint["components"].items() if "spout" in one["kind"]]
    for was, now in zip(before.placement["stateful"], stateful, strict=True):
        for id_ in was:
            today = renamed.get(id_, id_)
            if today in topology.components and topology.components[today].keeps_state and today not in now:
                return False
    kept = [id_ for level in before.placement["stateful"] for id_ in level]
    for id_ in {*kept, *spouts}:
        had, has = before.numbering.tasks[id_], topology.numbering.tasks.get(renamed.get(id_, id_), ())
        is_bolt_that_goes = id_ not in spouts and not has
        if not is_bolt_that_goes and (len(has) < len(had) if id_ in spouts else has != had):
            return False
    return True


def moves(before: Generation, after: Generation) -> list[Move]:
    """The state that comes from one generation's folder into that of the next."""
    places = {id_: place for place, level in enumerate(before.placement["stateful"]) for id_ in level}
    was = {now: id_ for id_, now in after.renamed.items()}
    found = []
    for place, level in enumerate(after.placement["stateful"]):
        for id_ in level:
            old = was.get(id_, id_)
            if old in places:
                found.append(
                    Move(
                        id_,
                        len(before.placement["stateful"]) - 1 - places[old],
                        place,
                        _dests(before, old),
                        _dests(after, id_),
                    )
                )
    return found


def _dests(generation: Generation, component: str) -> tuple[int, ...]:
    dests = generation.placement["dests"]
    return tuple(dests[str(task)] for task in generation.numbering.tasks[component])


# What is said about each component.


def _steps(
    topology: Topology, before: Generation, renamed: Mapping[str, str], lane: Lane, divisible: Divisible
) -> Iterator[ShapeStep]:
    name = before.fingerprint["name"]
    if topology.name != name:
        why = f"its name was {name!r} and is now {topology.name!r}: call it {name!r} again"
        yield ShapeStep("the topology", Effect.REFUSED, why)
    had = {renamed.get(id_, id_): _today(one, renamed) for id_, one in before.fingerprint["components"].items()}
    has: dict[str, Any] = _plain(topology.fingerprint())["components"]
    for old, new in renamed.items():
        yield ShapeStep(_named(has[new], new), Effect.GOES_ON, f"it was called {old!r}")
    for id_, spec in topology.components.items():
        old = spec.renamed_from or ""
        if old in had and id_ in had and old not in has:
            why = f"the checkpoint knows {old!r} and another {id_!r}, so it is not clear which of them it is: if it is "
            why += f"{id_!r}, remove renamed_from; if it is {old!r}, give it a third id"
            yield ShapeStep(_named(has[id_], id_), Effect.REFUSED, why)
    stores = {renamed.get(id_, id_) for level in before.placement["stateful"] for id_ in level}
    alike = _alike(had, has)
    loops = {key for one in had.values() for key, how in one["subscriptions"].items() if how.endswith(FEEDBACK)}
    streams = {f"{id_}/{name}": of["fields"] for id_, one in has.items() for name, of in one["streams"].items()}
    for id_ in had:
        if id_ not in has:
            yield _gone(id_, had[id_], id_ in stores, alike.get(id_))
    for id_ in has:
        if id_ not in had:
            yield ShapeStep(_named(has[id_], id_), Effect.BEGINS, "it is new")
    for id_ in sorted(set(had) & set(has)):
        spec, keeps = topology.components[id_], id_ in stores
        yield from _component_steps(spec, had[id_], has[id_], keeps, lane, divisible, loops, streams)


def _today(one: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    """A component, with the names of today where it subscribes to others."""

    def source_and_stream(key: str) -> str:
        source, _, stream = key.rpartition("/")
        return f"{renamed.get(source, source)}/{stream}"

    return {**one, "subscriptions": {source_and_stream(key): how for key, how in one["subscriptions"].items()}}


def _named(one: Mapping[str, Any], id_: str) -> str:
    return f"{'spout' if 'spout' in one['kind'] else 'bolt'} {id_!r}"


def _gone(id_: str, one: Mapping[str, Any], keeps: bool, alike: str | None) -> ShapeStep:
    hint = f"; if {alike!r} is its new name, declare that with renamed_from={id_!r}" if alike else ""
    if "spout" in one["kind"]:
        why = "it is gone: messages of it that are open or wait for a retry are dropped"
        return ShapeStep(_named(one, id_), Effect.GOES, why + hint)
    if keeps:
        why = "it is gone, and its state with it; trees whose tuples it holds fail, and are retried"
        return ShapeStep(_named(one, id_), Effect.GOES, why + hint)
    if alike:
        return ShapeStep(_named(one, id_), Effect.GOES, f"it is gone{hint}")
    return ShapeStep("the topology", Effect.GOES_ON, f"{_named(one, id_)} is gone, which kept nothing")


def _alike(had: Mapping[str, Any], has: Mapping[str, Any]) -> dict[str, str]:
    """By id that is gone: the new id of the only component that is like it."""
    gone, new = [id_ for id_ in had if id_ not in has], [id_ for id_ in has if id_ not in had]
    pairs = [(was, now) for was in gone for now in new if _without_inputs(had[was]) == _without_inputs(has[now])]
    weres, nows = [was for was, _ in pairs], [now for _, now in pairs]
    return {was: now for was, now in pairs if weres.count(was) == 1 and nows.count(now) == 1}


def _without_inputs(one: Mapping[str, Any]) -> dict[str, Any]:
    return {**one, "subscriptions": sorted(one["subscriptions"].values()), "parallelism": None}


def _component_steps(
    spec: ComponentSpec,
    was: Mapping[str, Any],
    now: Mapping[str, Any],
    keeps: bool,
    lane: Lane,
    divisible: Divisible,
    loops: Collection[str],
    streams: Mapping[str, Collection[str]],
) -> Iterator[ShapeStep]:
    """The steps of a component that both topologies have.

    ``keeps``: the checkpoint has state of it; ``loops``: the streams, as component/stream, whose tuples may wait;
    ``streams``: the fields of each stream, as it is now.
    """
    what = _named(now, spec.id)
    if _role(was["kind"]) != _role(now["kind"]):
        why = f"it was a {was['kind']} and is now a {now['kind']}: give it another id, which begins empty"
        yield ShapeStep(what, Effect.REFUSED, why)
        return
    if was["kind"] != now["kind"]:
        if keeps:
            yield ShapeStep(what, Effect.GOES, "it kept state and keeps none any more: that state is not used any more")
        else:
            yield ShapeStep(what, Effect.BEGINS, "it keeps state from now on")
    if was.get("starts_trees", False) != now.get("starts_trees", False):
        started = was.get("starts_trees", False)
        text = "it started trees, and would start none any more" if started else "it would start trees of its own"
        yield ShapeStep(what, Effect.REFUSED, f"{text}: change it back, or give it another id, which begins empty")
    yield from _tasks(spec, was["parallelism"], keeps and spec.keeps_state, what, divisible)
    yield from _settings(spec, was.get("settings", {}), now.get("settings", {}), what)
    yield from _inputs(was, now, keeps and spec.keeps_state, what, streams)
    every = spec.id in (*lane.starters, *lane.inlets)
    yield from _streams(was, now, lambda name: every or f"{spec.id}/{name}" in loops, what)


def _role(kind: str) -> str:
    return "bolt" if kind in (ComponentKind.STATELESS_BOLT, ComponentKind.STATEFUL_BOLT) else kind


def _tasks(spec: ComponentSpec, before: int, keeps: bool, what: str, divisible: Divisible) -> Iterator[ShapeStep]:
    after = spec.parallelism
    if before == after:
        return
    text = f"it has {after} task{'s' if after > 1 else ''} and had {before}"
    if not keeps:
        yield ShapeStep(what, Effect.GOES_ON, text)
        return
    refusal = divisible(spec, before, after)
    if refusal is not None:
        yield ShapeStep(what, Effect.REFUSED, f"{text}: {refusal}")
    else:
        yield ShapeStep(what, Effect.MOVES, f"{text}: its state is divided among them")


def _settings(spec: ComponentSpec, was: Mapping[str, str], now: Mapping[str, str], what: str) -> Iterator[ShapeStep]:
    """A bolt with a runtime says itself which of its settings may change."""
    names = [name for name in was if name in now and was[name] != now[name]]
    if not names or not isinstance(spec.component, RuntimeBolt):
        return
    refusal = spec.component.settings_change(was, now)
    if refusal is not None:
        yield ShapeStep(what, Effect.REFUSED, refusal)
    else:
        changed = ", and ".join(f"{name} was {was[name]} and is now {now[name]}" for name in names)
        yield ShapeStep(what, Effect.GOES_ON, f"{changed}: what it keeps goes on with these settings")


def _inputs(
    was: Mapping[str, Any], now: Mapping[str, Any], keeps: bool, what: str, streams: Mapping[str, Collection[str]]
) -> Iterator[ShapeStep]:
    old, new = was["subscriptions"], now["subscriptions"]
    for name in sorted({*old, *new}):
        if old.get(name) == new.get(name):
            continue
        if name not in old or name not in new:
            text = f"it does not subscribe to {name} any more" if name in old else f"it subscribes to {name}"
            yield ShapeStep(what, Effect.GOES_ON, text)
            continue
        text = f"it gets {name} by {new[name]}, and got it by {old[name]}"
        were, are = old[name].removesuffix(FEEDBACK), new[name].removesuffix(FEEDBACK)
        if not keeps or now["parallelism"] == 1 or were == are or {were, are} <= _ANY_TASK:
            yield ShapeStep(what, Effect.GOES_ON, text)
        elif _is_renamed(were, are, streams.get(name, ())):
            why = f"{text}: its state stays where it is, which is right only if the values are the same as before"
            yield ShapeStep(what, Effect.MOVES, why)
        else:
            why = f"{text}, so its tuples would meet the state of other ones: change it back, or give it another id"
            yield ShapeStep(what, Effect.REFUSED, f"{why}, which begins empty")


_ANY_TASK = {ShuffleGrouping().describe(), LocalOrShuffleGrouping().describe(), NoneGrouping().describe()}
"""The groupings that send any tuple to any task."""


def _is_renamed(before: str, after: str, fields: Collection[str]) -> bool:
    """Whether a grouping may choose the same tasks as before, by fields that only have other names now.

    Args:
        before: the grouping as it was.
        after: the grouping as it is now.
        fields: those that its stream has now.
    """
    kind, _, old = before.partition("(")
    kind_now, _, new = after.partition("(")
    names = [name.strip() for name in old.rstrip(")").split(",")]
    names_now = [name.strip() for name in new.rstrip(")").split(",")]
    if kind != kind_now or len(names) != len(names_now):
        return False
    return all(name == now or name not in fields for name, now in zip(names, names_now, strict=True))


def _streams(
    was: Mapping[str, Any], now: Mapping[str, Any], is_kept: Callable[[str], bool], what: str
) -> Iterator[ShapeStep]:
    """``is_kept``: whether tuples of a stream are kept, for a time, with the fields that they had."""
    old, new = was["streams"], now["streams"]
    for name in sorted({*old, *new}):
        if old.get(name) == new.get(name):
            continue
        if name not in old or name not in new:
            yield ShapeStep(what, Effect.GOES_ON, f"it declares stream {name!r}{'' if name in new else ' no more'}")
        elif is_kept(name) and old[name] != new[name]:
            why = f"its stream {name!r} has fields {new[name]['fields']} and had {old[name]['fields']}, and it keeps "
            why += "tuples with the fields that they had: change it back, or use another stream"
            yield ShapeStep(what, Effect.REFUSED, why)
        else:
            yield ShapeStep(what, Effect.GOES_ON, f"its stream {name!r} has fields {new[name]['fields']}")
