"""The settings of a topology, and of one component in it.

Storm's dotted names are aliases of the same settings, and the defaults are those of its ``conf/defaults.yaml``. A
setting of Storm without a meaning on Spark is rejected, and the error explains what replaces it.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Literal, TypedDict

from sparkbolt.api.arguments import POSITIVE, SHARE, Check, checks_of, whole
from sparkbolt.api.dead_letters import DeadLetters, is_dead_letters
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.base.ids import MAX_TASK_NUMBER
from sparkbolt.errors import ConfigError

KIB = 1024
MIB = 1024 * KIB


class ComponentSettings(TypedDict, total=False):
    """The settings that one component may have for itself: the keyword arguments of ``set_spout`` and ``set_bolt``."""

    tick_tuple_freq_secs: float | None
    max_spout_pending: int | None
    fuse: bool
    debug: bool
    max_attempts: int | None
    max_hops: int
    retry: RetryPolicy | None
    dead_letters: DeadLetters | None
    on_error: Literal["fail", "stop"]
    trace: float | Callable[[Any], Any]
    effects: Literal["once", "repeatable", "none"]


COMPONENT_KEYS = frozenset(ComponentSettings.__annotations__)
"""The settings that a component may have for itself."""


TIMEOUT_SECS_MIN = 0.001
"""The shortest timeout: plans count in whole milliseconds."""


SECONDS = Check("a number of seconds above 0", POSITIVE.accepts)
TIMEOUT_SECONDS = Check(
    f"a number of seconds of at least {TIMEOUT_SECS_MIN:g}",
    lambda value: POSITIVE.accepts(value) and value >= TIMEOUT_SECS_MIN,
)
PENDING_TREES = Check(whole(1).expected, whole(0).accepts)
SHARE_OR_FUNCTION = Check(
    f"{SHARE.expected}, or a function of the spout's tuple", lambda value: SHARE.accepts(value) or callable(value)
)
POLICY = Check("a RetryPolicy", lambda value: isinstance(value, RetryPolicy))
DEAD_LETTERS = Check(
    "'checkpoint:', 'file:PATH', 'stream:NAME', 'log:', a name that the spout knows, a function, a DeadLetterSink",
    is_dead_letters,
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a topology; keyword arguments only, all of them optional.

    Keys are the names below or, at run time, Storm's dotted ones. A ``ConfigError`` names all keys that are unknown or
    given twice, and all values that are invalid.

    >>> Config(message_timeout_secs=60).message_timeout_secs
    60
    >>> Config(**{"topology.max.spout.pending": 1000}).max_spout_pending
    1000
    >>> Config(max_spout_pending=0) == Config(max_spout_pending=None)
    True
    """

    transactional: bool = False
    """Whether a micro-batch runs again without the trees that fail in it, so that state and emitted tuples contain
    nothing of them (``docs/exactly-once.md``)."""
    effects: Literal["once", "repeatable", "none"] = "once"
    """In a transactional topology, the effects of a bolt outside of it. ``once``: it must not happen twice, which a
    bolt without outputs can promise only as a ``Committer``; ``repeatable``: it may happen more than once, also for
    tuples that fail; ``none``: nothing."""
    message_timeout_secs: Annotated[float, TIMEOUT_SECONDS] = 30
    """How many seconds a tree may stay open before it fails; some trees may stay open a little longer."""
    enable_message_timeouts: bool = True
    """Whether trees time out at all."""
    max_spout_pending: Annotated[int, PENDING_TREES] | None = None
    """How many trees of one task of a spout, or of a bolt that starts trees, may be open at once. None, or 0 as in
    Storm: for a spout, only the measured rate limits the number; for a bolt, there is no limit."""
    acker_tasks: Annotated[int, whole(0, MAX_TASK_NUMBER)] | None = None
    """How many tasks combine acks on the executors; None: one for each spark_partition; 0: nothing is tracked."""
    debug: bool = False
    """Whether every emit is logged."""
    tick_tuple_freq_secs: Annotated[float, SECONDS] | None = None
    """The period of tick tuples for each task of each bolt, in seconds; None: there are no tick tuples."""
    micro_batch_target_ms: Annotated[int, whole()] = 2000
    """How long a micro-batch should take, in milliseconds, if there is enough to read; the engine adapts the size of
    micro-batches to it. With less to read, a micro-batch takes less time."""
    max_attempts: Annotated[int, whole()] | None = None
    """The largest number of attempts at a message of a ``PartitionedSpout``, or at a tuple of a bolt that starts trees,
    the first one included, without waits between them; ``retry`` overrides it. None: 10 attempts, with waits that begin
    at half a second and double each time, up to two minutes."""
    max_hops: Annotated[int, whole()] = 1000
    """In how many micro-batches tuples of one tree may be fed back (``feedback=True``) before the tree fails; for the
    trees of a spout, or of a bolt that starts trees."""
    retry: Annotated[RetryPolicy, POLICY] | None = None
    """How often, and after which waits, a failed message is retried. None: the spout's attribute ``retry`` applies; if
    that is None too, ``max_attempts`` applies, but a ``Spout`` decides itself."""
    dead_letters: Annotated[DeadLetters, DEAD_LETTERS] | None = None
    """Where the dead letters of a spout go, for messages that are given up after their last attempt. None: the spout's
    attribute ``dead_letters`` applies; if that is None too, they go to the folder ``dead-letters`` of the checkpoint.
    ``log:``: no dead letters are written, only the log mentions the messages."""
    on_error: Literal["fail", "stop"] = "fail"
    """The effect of an exception in user code: ``fail``: the tree of its tuple fails; ``stop``: the topology stops."""
    trace: Annotated[float | Callable[[Any], Any], SHARE_OR_FUNCTION] = 0.0
    """Which trees of a spout are traced, besides those of retried messages: a share of all, from 0 to 1, or a function
    of the spout's tuple that returns True for them."""
    frame_bytes_max: Annotated[int, whole(KIB)] = 4 * MIB
    """The approximate number of bytes of values after which a frame is cut."""
    tuple_bytes_max: Annotated[int, whole(KIB)] = 64 * MIB
    """The approximate largest number of bytes of a tuple that is sent to another task; the tree of a larger one
    fails."""
    micro_batch_bytes_max: Annotated[int, whole(KIB)] = 256 * MIB
    """How many bytes of records all spouts together may hold in the driver for one micro-batch."""
    plan_bytes_max: Annotated[int, whole(KIB)] = 64 * KIB
    """The largest plan, in bytes, that is stored in the offsets; a larger one is written to a file beside them."""
    state_warn_bytes: Annotated[int, whole()] = 4 * MIB
    """The size of a task's durable attributes, in bytes, from which a warning is logged, once."""
    compact_every: Annotated[int, whole()] = 20
    """How many entries of the ledger are compacted into one."""
    stories_max: Annotated[int, whole()] = 1000
    """How many stories of failed trees the ledger keeps, and how many of traced trees that were acked; the newest."""
    fuse: bool = True
    """Whether a stateless bolt may run in its producer's stage, if its groupings allow that."""
    max_error_report_per_interval: Annotated[int, whole()] = 5
    """How many errors of one component are reported in an interval."""
    error_throttle_interval_secs: Annotated[float, SECONDS] = 10
    """The length of that interval, in seconds."""
    restarts_max: Annotated[int, whole(0)] = 5
    """How often a failed query is restarted in the same driver within ``restart_window_secs``. Two kinds of failure do
    not count, and are retried for ``outage_patience_secs``: a Python process of Spark that does not start in time, and
    a source that is unavailable when its spout is opened."""
    restart_backoff_secs: Annotated[float, SECONDS] = 2
    """The wait before the first restart, in seconds; each further wait is twice as long, at most 60 s."""
    restart_window_secs: Annotated[float, SECONDS] = 600
    """The time, in seconds, within which restarts are counted."""
    outage_patience_secs: Annotated[float, SECONDS] = 3600
    """How long, in seconds, an outage is tolerated. If a bolt fails nearly all its tuples, its failures cost no attempt
    for this time, and its spouts only probe it; after that, ``retry`` applies again. The engine also waits this long
    for a Python process of Spark that does not start."""

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> Config:
        """Return a Config from a mapping, for example from a file; keys and errors are those of ``Config(...)``.

        >>> Config.from_mapping({"topology.debug": True, "fuse": False}).debug
        True
        """
        return cls(**settings)

    def with_component(self, overrides: Mapping[str, Any]) -> Config:
        """Return the settings of one component: these settings, overridden by its own (of ``COMPONENT_KEYS``).

        Raises:
            ConfigError: as for ``Config(...)``; also for a key that only a whole topology can have.

        >>> Config(debug=True).with_component({"fuse": False}).fuse
        False
        """
        checks = checks_of(Config)
        own = _checked(overrides, {key: checks[key] for key in sorted(COMPONENT_KEYS)})
        return dataclasses.replace(self, **own)


_store: Callable[..., None] = Config.__init__


@wraps(_store)
def _check_and_store(self: Config, **settings: Any) -> None:
    _store(self, **_checked(settings, checks_of(Config)))


Config.__init__ = _check_and_store  # type: ignore[method-assign]

STORM_KEYS: Mapping[str, str] = {
    "topology.message.timeout.secs": "message_timeout_secs",
    "topology.enable.message.timeouts": "enable_message_timeouts",
    "topology.max.spout.pending": "max_spout_pending",
    "topology.acker.executors": "acker_tasks",
    "topology.debug": "debug",
    "topology.tick.tuple.freq.secs": "tick_tuple_freq_secs",
    "topology.max.error.report.per.interval": "max_error_report_per_interval",
    "topology.error.throttle.interval.secs": "error_throttle_interval_secs",
}
"""Storm's name of a setting, and its name in ``Config``."""

_PROCESSES = "Spark decides how many processes run: set it with --master and Spark's own configuration"
_PARALLELISM = "a component has as many tasks as the parallelism given to set_spout or set_bolt"
_BUFFERS = "tuples travel in frames: see frame_bytes_max"
_COUNTED = "every tuple is counted, and counts are committed with the micro-batch"
_STATE = "state is kept by Spark and committed with each micro-batch: see micro_batch_target_ms"
_WINDOWS = "windows are set on the bolt: Tumbling(minutes=1, timestamp='at', lag=seconds(5)), or with_window, with_lag"
_SHUFFLE = "a shuffle grouping is always a plain round robin"
_WAITING = "nothing spins here: an idle topology waits in the driver"
_SERVERS = "there is no such server here: Spark runs the topology"
_VALUES = "values are carried by Arrow, or pickled where Arrow has no type for them"

STORM_KEYS_WITHOUT_MEANING: Mapping[str, str] = {
    "topology.workers": _PROCESSES,
    "topology.worker.childopts": _PROCESSES,
    "topology.ras.acker.executors.per.worker": "the number of ackers is acker_tasks",
    "topology.tasks": _PARALLELISM,
    "topology.max.task.parallelism": _PARALLELISM,
    "topology.stats.sample.rate": _COUNTED,
    "topology.builtin.metrics.bucket.size.secs": _COUNTED,
    "num.stat.buckets": _COUNTED,
    "topology.eventlogger.executors": "there is no event logger: debug=True logs every emit",
    "topology.state.checkpoint.interval.ms": _STATE,
    "topology.state.provider": _STATE,
    "topology.state.provider.config": _STATE,
    "topology.disable.loadaware.messaging": _SHUFFLE,
    "topology.localityaware.higher.bound": _SHUFFLE,
    "topology.localityaware.lower.bound": _SHUFFLE,
    "topology.spout.recvq.skips": _WAITING,
    "topology.sleep.spout.wait.strategy.time.ms": _WAITING,
    "topology.spout.wait.strategy": _WAITING,
    "topology.bolt.wait.strategy": _WAITING,
    "topology.executor.receive.buffer.size": _BUFFERS,
    "topology.transfer.buffer.size": _BUFFERS,
    "topology.producer.batch.size": _BUFFERS,
    "topology.transfer.batch.size": _BUFFERS,
    "topology.batch.flush.interval.millis": _BUFFERS,
    "topology.backpressure.check.millis": "max_spout_pending bounds what is under way",
    "topology.shellbolt.max.pending": "bolts are Python already: there is no shell bolt",
    "topology.trident.batch.emit.interval.millis": "the length of a micro-batch is micro_batch_target_ms",
    "topology.bolts.window.length.count": _WINDOWS,
    "topology.bolts.window.length.duration.ms": _WINDOWS,
    "topology.bolts.window.sliding.interval.count": _WINDOWS,
    "topology.bolts.window.sliding.interval.duration.ms": _WINDOWS,
    "topology.bolts.watermark.event.interval.ms": _WINDOWS,
    "topology.bolts.tuple.timestamp.max.lag.ms": _WINDOWS,
    "topology.bolts.tuple.timestamp.field.name": _WINDOWS,
    "topology.bolts.late.tuple.stream": _WINDOWS,
    "topology.bolts.message.id.field.name": _WINDOWS,
    "topology.kryo.register": _VALUES,
    "topology.fall.back.on.java.serialization": _VALUES,
    "topology.transactional.id": "set transactional=True: each micro-batch is a transaction, and its number the txid",
    "ui.port": _SERVERS,
    "nimbus.monitor.freq.secs": _SERVERS,
    "supervisor.worker.shutdown.sleep.secs": _SERVERS,
}
"""Storm's settings that have no meaning here, each with what replaces it."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return ``": did you mean 'x'?"`` with the nearest known name, or an empty text if no name is similar.

    >>> did_you_mean("spilt", ["split", "count"])
    ": did you mean 'split'?"
    """
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f": did you mean {near[0]!r}?" if near else ""


def _checked(settings: Mapping[str, Any], allowed: Mapping[str, Check]) -> dict[str, Any]:
    """Return the settings by their own names, after checking that all keys are allowed and all values are valid."""
    checked: dict[str, Any] = {}
    mistakes: list[str] = []
    for name, value in settings.items():
        key = STORM_KEYS.get(name, name)
        if key not in allowed:
            mistakes.append(_refusal(name, key, allowed))
        elif key in checked:
            mistakes.append(f"setting {key!r} is given twice, once by Storm's name: expected one of the two")
        elif mistake := allowed[key].mistake(name, value):
            mistakes.append(mistake)
        else:
            checked[key] = None if key == "max_spout_pending" and value == 0 else value  # 0 is no limit, as in Storm
    if mistakes:
        raise ConfigError("; ".join(mistakes))
    return checked


def _refusal(name: str, key: str, allowed: Mapping[str, Any]) -> str:
    """Explain why a key is not among the allowed ones."""
    if key in checks_of(Config):
        return f"setting {name!r} belongs to the whole topology: set it in Config, not for one component"
    if name in STORM_KEYS_WITHOUT_MEANING:
        return f"Storm's setting {name!r} has no meaning here: {STORM_KEYS_WITHOUT_MEANING[name]}"
    dotted = [storm for storm, ours in STORM_KEYS.items() if ours in allowed]
    hint = did_you_mean(name, [*allowed, *dotted, *([] if allowed is checks_of(Config) else ["parallelism"])])
    return f"unknown setting {name!r}" + (hint or f": expected one of {', '.join(allowed)}")
