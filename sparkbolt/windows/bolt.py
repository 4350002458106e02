"""The windowed bolt: what users subclass, and how they say which windows they want.

Which question it answers: which methods does a windowed bolt have, and what does each setting mean?
Rule: a windowed bolt is a value like any other; what runs it is ``task``.

Read before: ``settings``, ``window``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from sparkbolt.core.model.components import TopologyContext
from sparkbolt.core.model.config import Config
from sparkbolt.core.model.runtime_bolts import RuntimeBolt
from sparkbolt.core.model.tuples import DEFAULT_STREAM, Tuple
from sparkbolt.core.worker.bolt_runtime import BoltRuntime
from sparkbolt.errors import UnknownNameError
from sparkbolt.windows.firing import Count
from sparkbolt.windows.policies import EvictionPolicy
from sparkbolt.windows.settings import LATE_FIELD, Windowing, mistakes_of
from sparkbolt.windows.triggers import TriggerPolicy

if TYPE_CHECKING:
    from sparkbolt.core.worker.tuple_batch import Output
    from sparkbolt.windows.collector import WindowCollector
    from sparkbolt.windows.window import TupleWindow

Bolt = TypeVar("Bolt", bound="WindowedBolt")
Closed: TypeAlias = Literal["left", "right"]
"""Which of its two ends belongs to a window."""


@dataclass(frozen=True)
class LateTuple:
    """A tuple that came too late, as the field ``late_tuple`` of the stream for such tuples.

    ``dict(late)`` has its values by field, and so it is written by ``JsonLinesBolt``.

    >>> late = LateTuple("clicks", 0, "default", ("at", "name"), (19_999, "ann"))
    >>> late["name"], dict(late)
    ('ann', {'at': 19999, 'name': 'ann'})
    """

    source_component: str
    source_task: int
    """The task's index within its component."""
    source_stream: str
    fields: tuple[str, ...]
    values: tuple[Any, ...]

    def __getitem__(self, name: str) -> Any:
        """The value of a field; KeyError if there is no such field."""
        if name not in self.fields:
            raise UnknownNameError(f"{name!r} does not exist in this late tuple, whose fields are {list(self.fields)}")
        return self.values[self.fields.index(name)]

    def keys(self) -> tuple[str, ...]:
        """The names of its fields, so that it can be made a dict."""
        return self.fields


class WindowedBolt(RuntimeBolt):
    """A bolt whose ``execute`` gets windows of tuples (Storm's ``IWindowedBolt``).

    Say which windows with the ``with_...`` methods, which change the bolt and return it. A window's content is
    durable: it is committed with each micro-batch, and its tuples are acked then. What ``execute`` emits starts trees
    of its own.

    >>> class Total(WindowedBolt):
    ...     outputs = ["total"]
    ...     def execute(self, window, collector):
    ...         collector.emit([sum(tup["amount"] for tup in window)])
    >>> total = Total().with_window(timedelta(minutes=5), slide=timedelta(minutes=1)).with_timestamp_field("at")
    """

    __slots__ = ("_set",)  # in a slot it is no durable attribute: what the program says now is what counts
    _set: Windowing

    starts_trees = True

    @abstractmethod
    def execute(self, window: TupleWindow, collector: WindowCollector) -> Iterable[Sequence[Any]] | None:
        """Called for each window that has tuples, in the order in which they are due; what it yields is emitted.

        An exception is reported, and what was emitted for this window is dropped; the window is not shown again. With
        ``with_ack_on_expiry`` the trees of its tuples fail. ``window`` is to be used within this call only.
        """

    # Which windows.

    def with_window(
        self: Bolt,
        length: Count | timedelta,
        slide: Count | timedelta | None = None,
        *,
        closed: Closed | None = None,
    ) -> Bolt:
        """Windows of a length that slide by ``slide``; by every tuple, if that is left out.

        In event time, windows that slide by time end at multiples of the slide, and one that ends at ``end`` holds
        ``(end - length, end]``. On arrival, timers start with the task.

        Args:
            length: a ``Count`` of tuples, or a duration.
            slide: from one window to the next, a ``Count`` or a duration, whatever the length is.
            closed: of windows that slide by time, ``"left"`` for ``[end - length, end)``, so that a tuple right on a
                boundary belongs to the window that begins there, as one wants it of clocks of whole seconds. By default
                ``"right"`` in event time, as in Storm, and ``"left"`` on arrival, where nothing else is possible.
        """
        return self._given("with_window", length=length)._with(slide=slide, closed=closed)

    def with_tumbling_window(self: Bolt, length: Count | timedelta, *, closed: Closed | None = None) -> Bolt:
        """Windows that follow one another: each tuple is in one of them; ``closed`` as of ``with_window``."""
        return self._given("with_tumbling_window", length=length)._with(slide=length, closed=closed)

    def with_session_gap(self: Bolt, gap: timedelta) -> Bolt:
        """Sessions: a window holds tuples that are less than ``gap`` apart, and ends a gap after the last of them."""
        return self._given("with_session_gap", gap=gap)

    def with_policies(self: Bolt, eviction: EvictionPolicy, trigger: TriggerPolicy) -> Bolt:
        """Windows as policies of one's own make them; each task, or key, has copies of them."""
        return self._with(policies=(eviction, trigger))

    def with_key(self: Bolt, *fields: str, idle_timeout: timedelta | None = None) -> Bolt:
        """A window of its own for each value of some fields, within the task: group the input by the same fields.

        ``window.key`` is the value, or a tuple of them if there are several fields. A key whose window is empty is
        forgotten.

        Args:
            fields: names of fields that every input stream has.
            idle_timeout: a key that got no tuple for so long, by the micro-batch's clock, is forgotten with the tuples
                of its window. None: not while there are any, and a window with a count may have some for ever.
        """
        return self._with(key=fields, key_idle=idle_timeout)

    # Event time.

    def with_timestamp_field(self: Bolt, field: str) -> Bolt:
        """Windows in event time, which a field of every input stream holds.

        The field holds milliseconds since the epoch (int), or a ``datetime`` with a zone; a tuple of a time before
        1970 fails for good.
        """
        before = self._windowing.timestamp_field
        if before is not None:
            return self._refuse(
                f"with_timestamp_field was called twice, with {before!r} and {field!r}: a tuple has one time"
            )
        return self._given("with_timestamp_field", timestamp_field=field)

    def with_timestamp_extractor(self: Bolt, extractor: Callable[[Tuple], int]) -> Bolt:
        """As ``with_timestamp_field``, with a function of the tuple; it must be one that can be pickled."""
        if self._windowing.timestamp_extractor is not None:
            return self._refuse("with_timestamp_extractor was called twice, expected one extractor")
        given: object = extractor
        if not callable(given):
            return self._refuse(f"with_timestamp_extractor: expected a function of a tuple, got {given!r}")
        return self._with(timestamp_extractor=extractor)

    def with_lag(self: Bolt, lag: timedelta) -> Bolt:
        """How much out of order tuples may come: the watermark stays so far behind the newest tuple. 0 by default."""
        return self._given("with_lag", lag=lag)

    def with_max_future(self: Bolt, max_future: timedelta) -> Bolt:
        """How far ahead of the micro-batch's time a timestamp may be; ten years by default.

        A tuple that is further ahead, such as one whose timestamp counts microseconds, fails for good, with a sentence
        that says so, and does not move the watermark: otherwise everything after it would be late for ever.
        """
        return self._given("with_max_future", max_future=max_future)

    def with_watermark_interval(self: Bolt, interval: timedelta) -> Bolt:
        """How often the watermark moves, at most; a second by default. It moves at the end of a micro-batch."""
        return self._given("with_watermark_interval", watermark_interval=interval)

    def with_late_tuple_stream(self: Bolt, stream: str) -> Bolt:
        """Send tuples that are older than the watermark to a stream of this bolt, anchored to themselves.

        The stream is declared by this call and has one field, ``late_tuple``: a ``LateTuple``. Without it late tuples
        are counted, logged once in a while, and acked.
        """
        declared: Any = self.outputs
        name: object = stream
        if isinstance(name, str) and (declared is None or isinstance(declared, list | tuple | Mapping)):
            streams = declared if isinstance(declared, Mapping) else {DEFAULT_STREAM: declared} if declared else {}
            self.outputs = {stream: [LATE_FIELD], **streams}
        return self._given("with_late_tuple_stream", late_stream=stream)

    def with_idle_stream_timeout(self: Bolt, timeout: timedelta) -> Bolt:
        """Let windows go on without an input stream that was silent for so long, by the micro-batch's clock."""
        return self._given("with_idle_stream_timeout", idle_timeout=timeout)

    # Reliability and memory.

    def with_ack_on_expiry(self: Bolt) -> Bolt:
        """Storm's way: tuples are acked when they expire, and what ``execute`` emits is anchored to the window.

        A window must then fit into the message timeout, or into ``max_spout_pending`` if it is a count.
        """
        self.starts_trees = False
        return self._with(ack_on_expiry=True)

    def with_message_id_field(self: Bolt, field: str) -> Bolt:
        """Drop tuples that were seen before, also before a restart.

        ``field`` of every input stream holds a number that rises with each message of one source task and stream. Whole
        numbers without a gap are known as one run, and 10,000 runs are known of each source, those of the highest
        numbers. A number that is not known is never dropped.
        """
        return self._given("with_message_id_field", message_id_field=field)

    def with_max_events_in_memory(self: Bolt, tuples: int) -> Bolt:
        """Keep about so many tuples of a task's windows in memory, and read the others back when they are needed."""
        return self._given("with_max_events_in_memory", max_events_in_memory=tuples)

    # What the engine asks.

    @property
    def _windowing(self) -> Windowing:
        return getattr(self, "_set", None) or Windowing()

    def _with(self: Bolt, **settings: Any) -> Bolt:
        self._set = replace(self._windowing, **settings)
        return self

    def _given(self: Bolt, method: str, **setting: object) -> Bolt:
        """Take over what a method was given; None is no setting, and would be taken for the default in silence."""
        if None in setting.values():
            return self._refuse(f"{method}: got None: leave the call out")
        return self._with(**setting)

    def _refuse(self: Bolt, mistake: str) -> Bolt:
        return self._with(mistakes=(*self._windowing.mistakes, mistake))

    # alike: ``RuntimeBolt.mistakes``, whose signature this is.
    def mistakes(
        self,
        config: Config,
        streams: Mapping[str, tuple[str, ...]],
        inputs: Mapping[tuple[str, str], tuple[str, ...]],
    ) -> list[str]:
        """Every sentence that says what is wrong with the settings; see ``RuntimeBolt``."""
        return list(mistakes_of(self._windowing, config, streams, inputs))

    @property
    def runs_timers(self) -> bool:
        """Whether windows are due at fixed times; see ``RuntimeBolt``."""
        return self._windowing.runs_timers

    def runtime(self, context: TopologyContext, output: Output) -> BoltRuntime:
        """What runs this bolt in a task; see ``RuntimeBolt``."""
        from sparkbolt.windows.task import WindowTask

        return WindowTask(self, self._windowing, context, output)
