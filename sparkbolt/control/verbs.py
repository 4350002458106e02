"""Verbs: the actions that operators can request of a topology, one function each.

The decorator adds a row to ``VERBS``, from the function's name, docstring, parameters and the decorator's arguments.
The command line, REST with its schema, the pages' forms, the control socket and the running topology follow from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from sparkbolt.api.config import did_you_mean
from sparkbolt.control.documents import Answer, TopologyState, accepted, done, refused
from sparkbolt.control.intent import RESET, TRACES_MAX, Intent, Scale, Trace, checked_setting
from sparkbolt.control.letters.selection import LetterFilter
from sparkbolt.control.parameters import Parameter, Row
from sparkbolt.control.stopped import StoppedTopology
from sparkbolt.errors import ConfigError, SparkboltError

if TYPE_CHECKING:
    from sparkbolt.control.letters.of_topology import TopologyLetters
    from sparkbolt.control.steering import Steering

NOTE_CHARACTERS_MAX = 64_000
Hidden = Annotated[str | None, Parameter(is_shown=False)]
"""A text that a form does not ask for."""
WAIT = ("-w", "--wait")
Deed = Callable[[], Answer]
"""The work of the thread of ``Steering`` for a verb."""
F = TypeVar("F", bound=Callable[..., Answer | Deed])
log = logging.getLogger("sparkbolt")


OVER = {
    TopologyState.KILLED: "the topology was killed and is ending",
    TopologyState.DRAINING: "the topology is stopping",
    TopologyState.ENDED: "the topology has ended",
    TopologyState.FAILED: "the topology has failed",
}
"""The states of a topology that is over, and the refusal of verbs that are not for it."""


@dataclass(frozen=True)
class Verb(Row):
    """A change that operators can request. It needs the token, and a person confirms it.

    Its function gets ``Steering``, who asks, and its arguments. It returns the answer, or what the thread of
    ``Steering`` does for it. The function of a verb ``of_letters`` gets ``TopologyLetters``, also if the topology has
    ended.
    """

    CONTEXT = ("steering", "by", "_by", "letters")
    effect: str = ""
    """Its effect, in a sentence or two that a person reads before confirming."""
    title: str = ""
    """On pages; by default its name."""
    button: str = ""
    """On the page that asks for confirmation; by default the title."""
    later: str = "it is done as soon as the topology handles the request"
    """The end of the answer if the topology is too busy to do it at once."""
    danger: bool = False
    """Whether it interrupts or removes something."""
    ends: bool = False
    """Whether the topology ends: its command waits for that if it gets ``wait_secs``."""
    while_ending: bool = False
    """Whether a topology that is over, and whose open trees may still finish, takes it; otherwise it is refused."""
    tab: str = ""
    """The page with its form, by the last part of its URL; empty: every page has a button."""
    only_in: tuple[TopologyState, ...] = ()
    not_in: tuple[TopologyState, ...] = ()
    """The states in which pages have that button."""
    path: str = ""
    """Its route below ``/topologies/ID/``; by default its name."""
    is_storms: bool = False
    """Whether Storm's REST interface has it."""
    told_by: tuple[str, ...] = ()
    """The kinds of the events that tell how it went, the first if well: its command waits for one of them."""
    has_command: bool = True
    has_route: bool = True
    of_letters: bool = False
    when_stopped: bool = False
    """Whether it also changes a topology that does not run; its function gets ``StoppedTopology`` then."""

    @staticmethod
    def named(name: str) -> str:
        """The name of its command: ``pause_sink`` is ``pause-sink``."""
        return Row.named(name).replace("_", "-")

    @property
    def label(self) -> str:
        """Its title."""
        return self.title or self.name.replace("-", " ").capitalize()

    @property
    def help(self) -> str:
        """The description in the help of its command."""
        return self.effect or self.about

    @property
    def route(self) -> str:
        """Its route below ``/topologies/ID/``."""
        return self.path or self.name

    def is_offered(self, state: str) -> bool:
        """Whether every page of a topology in this state has a button for it."""
        everywhere = self.has_route and not self.tab and (self.while_ending or state not in OVER)
        return everywhere and state not in self.not_in and (not self.only_in or state in self.only_in)


VERBS: dict[str, Verb] = {}
"""By name."""


def verb(**row: Any) -> Callable[[F], F]:
    """Add a row with the fields of ``Verb`` for a function."""

    def add(function: F) -> F:
        one = Verb.of(function, **row)
        VERBS[one.name] = one
        return function

    return add


@verb(
    effect="The spouts emit again.",
    later="its spouts start as soon as it handles the request",
    only_in=(TopologyState.INACTIVE,),
    is_storms=True,
)
def activate(steering: Steering, by: str) -> Deed:
    """Start the spouts again after deactivate."""
    return lambda: _switch(steering, by, active=True)


@verb(
    effect="The spouts stop emitting, and open trees finish. The topology stays inactive until you activate it, also "
    "after a restart.",
    later="its spouts stop as soon as it handles the request",
    not_in=(TopologyState.INACTIVE,),
    is_storms=True,
)
def deactivate(steering: Steering, by: str) -> Deed:
    """Stop the spouts until activate, also after restarts."""
    return lambda: _switch(steering, by, active=False)


def _switch(steering: Steering, by: str, *, active: bool) -> Answer:
    operable = steering.operable
    before = operable.look(0.0).state
    steering.remember(replace(steering.intent, active=active, by=by, since_ms=steering.now_ms()))
    switch = operable.activate if active else operable.deactivate
    word = "active" if active else "inactive"
    if before == (TopologyState.ACTIVE if active else TopologyState.INACTIVE):
        switch()
        return done(f"the topology is already {word}, and stays {word}{steering.how_long()}")
    act = "activated" if active else "deactivated"
    steering.note(act, "its spouts emit" if active else "its spouts stop", by)
    steering.flush()  # before anybody sees the new state: so even a killed driver's events name the user
    switch()
    log.warning("topology %r is %s by %s", steering.topology.name, act, by)
    text = "its spouts emit" if active else "its spouts emit nothing, and open trees finish"
    return done(f"the topology is {word}: {text}. It stays {word}{steering.how_long()}")


@verb(
    effect="The query restarts from its checkpoint, in the same process. The running micro-batch runs again.",
    later="it restarts as soon as it handles the request",
    danger=True,
)
def restart(steering: Steering, by: str) -> Deed:
    """Restart the query from the checkpoint."""

    def act() -> Answer:
        steering.operable.restart(f"restarted by {by}")
        steering.note("restarted", "the query restarts from the checkpoint", by)
        return accepted("the query restarts from the checkpoint; a running micro-batch is cancelled and runs again")

    return act


@verb(
    effect="The spouts stop, open trees get time to finish, and the topology ends. No message is lost: if you start it "
    "again with its checkpoint, it retries what was not finished.",
    button="Kill topology",
    danger=True,
    ends=True,
    while_ending=True,
    is_storms=True,
)
def kill(
    steering: Steering, by: str, *, wait_secs: Annotated[float | None, Parameter(options=WAIT, metavar="SECS")] = None
) -> Answer:
    """Stop the spouts, wait for open trees, and end the topology.

    Args:
        steering: handles the requests to the topology.
        by: who asks.
        wait_secs: the time that open trees have to finish, in seconds, or as 5m or 1h (default: the message timeout).
    """
    topology = steering.topology
    timeout_secs = steering.intent.overrides(topology).message_timeout_secs or topology.config.message_timeout_secs
    secs = float(timeout_secs if wait_secs is None else wait_secs)
    trees = steering.operable.look(0.0).metrics.open_trees
    steering.operable.kill(secs, f"killed by {by}")
    steering.note("killed", f"its open trees have up to {secs:g} s to finish", by)
    return accepted(
        f"the topology is killed: its spouts emit nothing, {trees:,} open tree(s) have up to {secs:g} s to finish, "
        "and then it ends; unfinished trees are left for replay"
    )


@verb(
    effect="The setting changes at once, and keeps its new value after restarts.",
    title="Change a setting",
    button="Change setting",
    later="the change applies as soon as it handles the request",
    tab="settings",
    path="settings",
)
def set_(steering: Steering, by: str, key: str, value: str, *, component: str | None = None) -> Answer | Deed:
    """Change a setting of a running topology.

    Args:
        steering: handles the requests to the topology.
        by: who asks.
        key: one of log-level, max-spout-pending, micro-batch-target, message-timeout, max-attempts.
        value: the new value; it stays after a restart, and `default` undoes a change.
        component: only for this spout or bolt.
    """
    topology = steering.topology
    if component is not None and component not in topology.components:
        return refused(f"there is no component {component!r}{did_you_mean(component, topology.components)}")
    try:
        name, where, parsed = checked_setting(topology, key, value, component)
    except ConfigError as error:
        return refused(str(error))

    def act() -> Answer:
        if parsed == RESET:
            steering.remember(steering.intent.without_setting(name, component))
        else:
            steering.remember(steering.intent.with_setting(name, where, parsed))
        steering.apply()
        whose = f" of {where!r}" if where else ""
        shown = "as in its Config" if parsed == RESET else "without a limit" if parsed is None else str(parsed)
        steering.note("set", f"{name}{whose} is {shown}", by)
        log.warning("topology %r: %s%s is %s now, set by %s", topology.name, name, whose, shown, by)
        return done(f"{name}{whose} is now {shown}, and stays {shown}{steering.how_long()}")

    return act


@verb(
    effect="The topology pauses for some seconds, moves its state to the new tasks, and goes on, also after restarts. "
    "If it does not run, it does this when it starts again.",
    button="Rebalance",
    later="it is rebalanced as soon as it handles the request",
    tab="settings",
    is_storms=True,
    when_stopped=True,
)
def rebalance(
    steering: Steering | StoppedTopology,
    by: str,
    *,
    wait_secs: Annotated[float | None, Parameter(options=WAIT, metavar="SECS", is_shown=False)] = None,  # noqa: ARG001
    num_workers: Annotated[int | None, Parameter(lowest=1, options=("-n", "--num-workers"), is_shown=False)] = None,
    executors: Annotated[dict[str, int] | None, Parameter(options=("-e", "--executor"), metavar="COMPONENT=N")] = None,
    spark_partitions: Annotated[int | None, Parameter(lowest=1, options=("-s", "--spark-partitions"))] = None,
    reset: Annotated[bool, Parameter(is_shown=False)] = False,
) -> Answer | Deed:
    """Change the number of tasks, now or for the next start.

    Args:
        steering: handles the requests to the topology.
        by: who asks.
        wait_secs: accepted because Storm has it; it has no effect.
        num_workers: refused, because Spark sets the number of processes; Storm has this option.
        executors: the number of tasks of a component (repeatable).
        spark_partitions: the number of Spark's partitions, over which the tasks are distributed.
        reset: first return to the numbers in the code, without those of earlier rebalances.
    """
    components, mistakes = steering.components, []
    for name, number in (executors or {}).items():
        if name not in components:
            mistakes.append(f"there is no component {name!r}{did_you_mean(name, components)}")
        elif number < 1:
            mistakes.append(f"parallelism of {name!r} is {number!r}, expected a number of at least 1")
    if num_workers is not None:
        mistakes.append("Spark sets the number of processes: use --master and Spark's configuration")
    if mistakes:
        return refused("; ".join(mistakes))
    known = Intent() if reset else steering.intent
    scale = Scale({**known.executors, **(executors or {})}, spark_partitions or known.spark_partitions)
    if isinstance(steering, StoppedTopology):
        return steering.rebalance(scale, by)
    return partial(steering.rebalance, scale, by)


SAVED, NOT_SAVED = "savepoint", "savepoint failed"


@verb(
    effect="The state, the open work and the positions after the last micro-batch are copied, while the topology goes "
    "on. `sparkbolt run --from` begins another checkpoint from the copy.",
    title="Make a savepoint",
    button="Make savepoint",
    later="it makes the savepoint as soon as it handles the request, and its events tell when that is done",
    tab="settings",
    told_by=(SAVED, NOT_SAVED),
)
def savepoint(
    steering: Steering, by: str, *, name: Annotated[str | None, Parameter(options=("--as",), metavar="NAME")] = None
) -> Answer | Deed:
    """Copy the checkpoint of a running topology.

    Args:
        steering: handles the requests to the topology.
        by: who asks.
        name: the name of the savepoint, a folder below savepoints in the checkpoint (default: the time).
    """
    moment = datetime.fromtimestamp(steering.now_ms() / 1000, UTC)
    chosen = name or moment.strftime("%Y-%m-%dT%H-%M-%SZ")

    def act() -> Answer:
        try:
            place = steering.operable.savepoint(chosen)
        except (SparkboltError, OSError) as error:
            steering.note(NOT_SAVED, f"{chosen}: {error}", by)
            return refused(f"there is no savepoint: {error}")
        steering.note(SAVED, place, by)
        return done(f"savepoint {place}")

    return act


@verb(
    effect="From now on, Sparkbolt records each hop of the messages with this id. See them on the page Trees, "
    "or with `sparkbolt errors TOPOLOGY --state acked`.",
    title="Trace a message",
    button="Trace message",
    later="its hops are recorded as soon as it handles the request",
    tab="trees",
)
def trace(
    steering: Steering,
    by: str,
    *,
    message: Annotated[str, Parameter(lowest=1, options=("--message-id",), metavar="ID")],
    component: Annotated[str | None, Parameter(options=("--spout",))] = None,
    stop: bool = False,
) -> Answer | Deed:
    """Record the path of a message from now on.

    Args:
        steering: handles the requests to the topology.
        by: who asks.
        message: the id of the message, or SOURCE@POSITION, such as topic-0@42.
        component: only messages of this spout.
        stop: stop recording.
    """
    spouts = [spec.id for spec in steering.topology.spouts]
    if component is not None and component not in spouts:
        return refused(f"there is no spout {component!r}: the spouts are {', '.join(spouts)}")
    if not steering.operable.lane.tracked:
        return refused("the topology does not track tuples (acker_tasks=0), so it has no trees to trace")

    def act() -> Answer:
        dropped = None
        if stop:
            steering.remember(steering.intent.without_trace(message))
        else:
            intent, dropped = steering.intent.with_trace(Trace(message, component, by, steering.now_ms()))
            steering.remember(intent)
        steering.apply()
        steering.note("traced", f"message {message} is {'no longer ' if stop else ''}traced", by)
        if stop:
            return done(f"message {message} is no longer traced")
        more = f"; {dropped.message} is no longer traced, because the limit is {TRACES_MAX} messages" if dropped else ""
        return done(
            f"from now on, the hops of message {message} are recorded: its story shows them after it is acked or "
            f"has failed{more}"
        )

    return act


@verb(
    later="the event is recorded as soon as it handles the request",
    while_ending=True,
    has_command=False,
    has_route=False,
)
def note(
    steering: Steering,
    by: str,
    kind: Annotated[str, Parameter(choices=("letters",))],
    text: Annotated[str, Parameter(highest=NOTE_CHARACTERS_MAX)],
) -> Deed:
    """Note what an operator did with the topology's dead letters.

    Args:
        steering: handles the requests to the topology.
        by: who asks.
        kind: the kind of the event.
        text: what was done.
    """

    def act() -> Answer:
        steering.look_at_letters()
        steering.note(kind, text, by)
        return done("noted")

    return act


@verb(
    effect="The messages go back into the spouts that they came from, with all their attempts so far. A message that "
    "fails again is one dead letter again. If the topology does not run, they go back when it starts again.",
    title="Give back",
    button="Give back",
    tab="dead-letters",
    path="letters/replay",
    has_command=False,
    of_letters=True,
)
def replay(
    letters: TopologyLetters,
    ids: list[str] | None = None,
    values: dict[str, Any] | None = None,
    target: str | None = None,
    *,
    kind: Hidden = None,
    search: Hidden = None,
    cause: Hidden = None,
    component: Hidden = None,
    spout: Hidden = None,
    every: Annotated[bool, Parameter(is_shown=False)] = False,
    again: Annotated[bool, Parameter(is_shown=False)] = False,
) -> Answer:
    """Give dead letters back to the spouts that they came from, a single one optionally with other values.

    Args:
        letters: the dead letters of the topology.
        ids: the ids of the letters, or their beginnings (default: all letters that wait and match the other arguments).
        values: new values for fields of the record of a single letter.
        target: another destination: a file that a spout of the topology reads, or kafka:HOST:PORT/TOPIC (default: the
            spout that the message came from).
        kind: only letters of this kind; the question letter-kinds lists the kinds.
        search: only letters that contain this text.
        cause: only letters with this cause.
        component: only letters that this component failed.
        spout: only letters of this spout.
        every: all letters that wait, if there are no ids and no other arguments.
        again: also letters that were replayed before.
    """
    chosen = LetterFilter(search or "", cause, component, spout, kind)
    if not ids and chosen.is_empty and not every:
        return refused("choose dead letters: by ids, by a kind, by another filter, or every")
    return letters.replay(ids or [], values, target, chosen, again=again)


@verb(
    effect="The dead letter leaves the list of waiting letters. It stays in its file and in the list of all dead "
    "letters.",
    danger=True,
    tab="dead-letters",
    path="letters/discard",
    has_command=False,
    of_letters=True,
)
def discard(letters: TopologyLetters, ids: list[str] | None = None, *, kind: Hidden = None) -> Answer:
    """Discard dead letters.

    Args:
        letters: the dead letters of the topology.
        ids: the ids of the letters, or their beginnings.
        kind: all letters of this kind that wait, if there are no ids.
    """
    return letters.discard(ids or [], LetterFilter(kind=kind))


@verb(later="it takes them as soon as it handles the request", has_command=False, has_route=False)
def take_letters(steering: Steering, _by: str) -> Deed:
    """Look for dead letters that an operator gives back."""

    def act() -> Answer:
        steering.operable.take_letters()
        return done("the topology takes the letters")

    return act
