"""OpenTelemetry: sends the traces of trees, and the metrics of components, to a collector.

The engine never waits: a thread sends the stories of a queue of limited size, and dropped stories are counted and
logged. The standard variables of the environment (``OTEL_...``) apply where no argument is given.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any, TypeAlias

from opentelemetry.context import Context
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, Status, StatusCode, TraceFlags, set_span_in_context
from opentelemetry.trace import SpanContext as OtelContext

from sparkbolt.api.causes import Cause, MessageOutcome
from sparkbolt.api.components import PartitionedSpout, Spout
from sparkbolt.api.reports import FailedTree, MicroBatchReport
from sparkbolt.api.story import Story
from sparkbolt.api.topology import Topology
from sparkbolt.base.exceptions import line_of
from sparkbolt.errors import ConfigError
from sparkbolt.observe.otel_metrics import MetricSender
from sparkbolt.observe.spans import SCHEMA, Span, SpanContext, context_of, spans_of

STORIES_MAX = 10_000
"""How many stories may wait to be sent."""
DURATIONS_MAX = 10_000
"""For how many of the newest micro-batches the duration is known."""
ATTEMPTS_MAX = 1_000
"""For how many of the newest retried messages the trace of the last attempt is known."""
SPANS_MAX = 2048
"""How many spans the SDK's queue holds, unless ``OTEL_BSP_MAX_QUEUE_SIZE`` is larger."""
CLOSE_SECS = 5.0
"""How long the end of a topology waits until the last traces are sent."""
log = logging.getLogger("sparkbolt")

Ended: TypeAlias = Story | FailedTree


class OpenTelemetry:
    """Sends a trace for each tree that failed, was retried, or was traced (``trace=``): ``docs/opentelemetry.md``.

    It also sends the metrics that components declare with ``context.metrics``. It is given as ``telemetry=`` of
    ``Topology.start`` or ``Topology.run``. Without it, a topology sends traces and metrics if
    ``OTEL_EXPORTER_OTLP_ENDPOINT`` or ``OTEL_TRACES_EXPORTER`` is set. It needs ``sparkbolt[otel]``. Several topologies
    may be started with one object.

    >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    >>> OpenTelemetry(InMemorySpanExporter(), values=True)
    OpenTelemetry(InMemorySpanExporter, values=True)
    """

    def __init__(
        self,
        exporter: SpanExporter | None = None,
        *,
        values: bool = False,
        metric_exporter: MetricExporter | None = None,
    ) -> None:
        """Store how traces and metrics are sent.

        Args:
            exporter: sends the spans; by default the exporter in ``OTEL_TRACES_EXPORTER``, or else OTLP over HTTP to
                ``OTEL_EXPORTER_OTLP_ENDPOINT``. It is shut down when a topology ends.
            values: whether the values of tuples, shortened, are sent as ``sparkbolt.values``.
            metric_exporter: sends the metrics of components, as totals since the first start; by default, without
                ``exporter``, the exporter in ``OTEL_METRICS_EXPORTER``, or else OTLP if there is an endpoint for it.
        """
        self._exporter = exporter
        self._values = values
        self._metric_exporter = metric_exporter

    def __repr__(self) -> str:
        """The exporter, and whether values are sent."""
        exporter = type(self._exporter).__name__ if self._exporter is not None else "as the environment says"
        return f"OpenTelemetry({exporter}, values={self._values})"

    def build(self, topology: Topology) -> TraceSink:
        """Return the sender of the traces of a topology that starts.

        Raises:
            ConfigError: the environment names an exporter that is not installed, or that cannot be made.
        """
        exporters = [self._exporter] if self._exporter is not None else exporters_of_environment()
        given = self._exporter is not None or self._metric_exporter is not None
        of_metrics = [self._metric_exporter] if self._metric_exporter is not None else []
        of_metrics = of_metrics if given else metric_exporters_of_environment()
        return TraceSink(topology, exporters, values=self._values, metric_exporters=of_metrics)


class TraceSink:
    """Sends the traces and the metrics of one topology."""

    def __init__(
        self,
        topology: Topology,
        exporters: Sequence[SpanExporter],
        *,
        values: bool = False,
        metric_exporters: Sequence[MetricExporter] = (),
    ) -> None:
        """Begin; the thread that sends starts with the first story.

        Args:
            topology: the topology.
            exporters: each of them gets every span.
            values: whether the values of tuples are sent.
            metric_exporters: each of them gets the metrics of components.
        """
        self._metrics = MetricSender(topology.name, resource_of(topology.name), metric_exporters)
        self._topology = topology
        self._writer = SpanWriter(topology.name, exporters)
        self._values = values
        self._stories: deque[Ended] = deque()
        self._durations: OrderedDict[int, float] = OrderedDict()
        self._attempts: OrderedDict[tuple[object, ...], SpanContext] = OrderedDict()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self.dropped = 0
        """How many stories were dropped because the queue was full."""

    def micro_batch(self, report: MicroBatchReport) -> None:
        """Queue the stories that ended with this promotion, and take its metrics."""
        self._metrics.update(report.metrics)
        promotion = report.promotion
        ended: list[Ended] = [*promotion.failed, *promotion.letters_failed, *promotion.traced]
        with self._changed:
            self._durations[promotion.micro_batch_id] = report.elapsed_ms
            if len(self._durations) > DURATIONS_MAX:
                self._durations.popitem(last=False)
            room = max(0, STORIES_MAX - len(self._stories))
            if len(ended) > room and not self.dropped:
                log.warning(
                    "more trees of topology %r end than can be traced: some are not; their number is logged at the end",
                    self._topology.name,
                )
            self.dropped += max(0, len(ended) - room)
            self._stories.extend(ended[:room])
            if ended and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sparkbolt-traces", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Send the remaining stories for at most ``CLOSE_SECS``, and log how many traces were not sent."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._metrics.close(CLOSE_SECS)
        closer = self._thread or threading.Thread(target=self._writer.close, name="sparkbolt-traces", daemon=True)
        if self._thread is None:
            closer.start()
        closer.join(CLOSE_SECS)
        is_late = closer.is_alive()
        traces = self.dropped + len(self._stories)
        spans = self._writer.lost + (self._writer.pending if is_late else 0)
        if is_late:
            self._writer.abandon()
        if traces or spans:
            name = self._topology.name
            log.warning("of topology %r, %d traces and %d spans were not sent", name, traces, spans)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stories and not self._closing:
                    self._changed.wait()
                if not self._stories:
                    break
                ended = self._stories.popleft()
            try:
                self._send(ended)
            except Exception as error:  # noqa: BLE001  an exporter may raise anything; the next trace may succeed
                self._writer.fail(line_of(error))
        self._writer.close()

    def _send(self, ended: Ended) -> None:
        if isinstance(ended, FailedTree) and ended.fail.cause == Cause.POSTPONED:
            return  # nothing failed: the rest of a large range is read in the next micro-batch
        story = ended.to_story() if isinstance(ended, FailedTree) else ended
        message = (story.component, story.task, story.source, story.position, story.message_id)
        before = self._attempts.pop(message, None) if story.position is not None or story.message_id else None
        if isinstance(ended, FailedTree) and ended.outcome == MessageOutcome.RETRY:
            self._attempts[message] = context_of(self._topology.name, story)
            if len(self._attempts) > ATTEMPTS_MAX:
                self._attempts.popitem(last=False)
        spec = self._topology.components.get(story.component)
        source = spec.component if spec is not None else None
        known = (
            source.trace_attributes(story.source, story.position)
            if isinstance(source, Spout | PartitionedSpout)
            else {}
        )
        spans = spans_of(
            self._topology.name,
            story,
            durations_ms=self._durations,
            attributes=known,
            links=[before] if before is not None else (),
            values=self._values,
        )
        self._writer.write(spans)


class SpanWriter:
    """Hands spans to the SDK; one thread calls it."""

    def __init__(self, topology: str, exporters: Sequence[SpanExporter]) -> None:
        """Make the SDK's provider, with a batch processor for each exporter."""
        self._topology = topology
        self._ids = GivenIds()
        self._limit = _queue_size()
        self._exporters = [CountingExporter(one, self.fail) for one in exporters]
        self._processors = [BatchSpanProcessor(one, max_queue_size=self._limit) for one in self._exporters]
        sampler = None if os.environ.get("OTEL_TRACES_SAMPLER") else ALWAYS_ON
        self._provider = TracerProvider(sampler, resource_of(topology), shutdown_on_exit=False, id_generator=self._ids)
        for processor in self._processors:
            self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("sparkbolt", schema_url=SCHEMA)
        self._failed = False

    @property
    def lost(self) -> int:
        """How many spans an exporter could not send."""
        return sum(exporter.lost for exporter in self._exporters)

    @property
    def pending(self) -> int:
        """How many spans are not sent yet."""
        return sum(exporter.pending for exporter in self._exporters)

    def write(self, spans: Sequence[Span]) -> None:
        """Queue the spans of one trace; waits while the SDK's queue is full, since it would drop spans silently."""
        for exporter, processor in zip(self._exporters, self._processors, strict=True):
            if exporter.pending + len(spans) > self._limit:
                processor.force_flush()
        made: dict[int, OtelContext] = {}
        for span in spans:
            parent = span.parent
            known = made.get(parent.span_id) if parent is not None else None
            self._ids.next = span.context
            started = self._tracer.start_span(
                span.name,
                context=_within(known or (_sdk_context(parent) if parent is not None else None)),
                kind=SpanKind.CONSUMER if span.is_consumer else SpanKind.INTERNAL,
                attributes=span.attributes,
                links=[Link(_sdk_context(link)) for link in span.links],
                start_time=span.start_ns,
            )
            made[span.context.span_id] = started.get_span_context()
            if isinstance(started, SdkSpan):
                for exporter in self._exporters:
                    exporter.queued += bool(started.get_span_context().trace_flags.sampled)
                if span.exception:
                    started.add_event("exception", span.exception, timestamp=span.end_ns)
                if span.error is not None:
                    started.set_status(Status(StatusCode.ERROR, span.error))
            started.end(span.end_ns)

    def fail(self, reason: str) -> None:
        """Log that spans cannot be sent; only the first time."""
        if not self._failed:
            self._failed = True
            log.warning(
                "traces of topology %r cannot be sent (%s); it is tried on, and how many are lost is logged at the end",
                self._topology,
                reason,
            )

    def close(self) -> None:
        """Send the queued spans, and end the exporters."""
        self._provider.shutdown()

    def abandon(self) -> None:
        """End the exporters without waiting for queued spans, and without further logs."""
        self._failed = True
        for exporter in self._exporters:
            threading.Thread(target=exporter.shutdown, name="sparkbolt-traces-end", daemon=True).start()


class GivenIds(IdGenerator):
    """Gives each span the ids that were computed for it."""

    next: SpanContext = SpanContext(1, 1)
    """The context of the span that is made next."""

    def generate_span_id(self) -> int:
        """The id of the next span."""
        return self.next.span_id

    def generate_trace_id(self) -> int:
        """The id of its trace."""
        return self.next.trace_id


class CountingExporter(SpanExporter):
    """Passes spans on, and counts those that wait and those that are lost."""

    def __init__(self, exporter: SpanExporter, failed: Callable[[str], None]) -> None:
        """Pass spans on to ``exporter``; ``failed`` is called with a reason if they cannot be sent."""
        self._exporter = exporter
        self._failed = failed
        self.queued = 0
        """How many spans were queued; only the thread that queues them writes it."""
        self._passed = 0
        self.lost = 0

    @property
    def pending(self) -> int:
        """How many spans were queued and are not passed on yet."""
        return self.queued - self._passed

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        """Pass spans on."""
        result, reason = SpanExportResult.FAILURE, "the collector did not take them"
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001  an exporter may raise anything
            reason = line_of(error)
        self._passed += len(spans)
        if result is not SpanExportResult.SUCCESS:
            self.lost += len(spans)
            self._failed(reason)
        return result

    def shutdown(self) -> None:
        """End the exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the exporter."""
        return self._exporter.force_flush(timeout_millis)


def exporters_of_environment() -> list[SpanExporter]:
    """Make the exporters that ``OTEL_TRACES_EXPORTER`` names, by default ``otlp``.

    Raises:
        ConfigError: an exporter is not installed, or cannot be made.
    """
    named = os.environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    return [_exporter(name.strip(), "TRACES") for name in named.split(",") if name.strip()]


def metric_exporters_of_environment() -> list[MetricExporter]:
    """Make the exporters that ``OTEL_METRICS_EXPORTER`` names; by default ``otlp`` if there is an endpoint for it.

    Raises:
        ConfigError: as for ``exporters_of_environment``.
    """
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    named = os.environ.get("OTEL_METRICS_EXPORTER", "").strip()
    named = named or ("otlp" if any(map(os.environ.get, endpoints)) else "none")
    return [_exporter(name.strip(), "METRICS") for name in named.split(",") if name.strip() not in ("", "none")]


def resource_of(topology: str) -> Resource:
    """The resource of a topology: its name, and what the environment adds."""
    return Resource.create({"service.name": topology}).merge(OTELResourceDetector().detect())


def _exporter(name: str, kind: str) -> Any:
    """An exporter of ``TRACES`` or ``METRICS``."""
    protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{kind}_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    entry = name
    if name == "otlp":
        entry = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    there = {point.name: point for point in entry_points(group=f"opentelemetry_{kind.lower()}_exporter")}
    if entry not in there:
        raise ConfigError(
            f"OTEL_{kind}_EXPORTER names {name!r}, which needs the exporter {entry!r}; installed are "
            f"{', '.join(sorted(there)) or 'none'}: install its package, such as opentelemetry-exporter-"
            f"{entry.replace('_', '-')}"
        )
    try:
        exporter = there[entry].load()()
    except Exception as error:
        raise ConfigError(f"the exporter {entry!r} of OpenTelemetry cannot be made: {line_of(error)}") from error
    return exporter


def _queue_size() -> int:
    """The size of the SDK's queue: at least ``SPANS_MAX``, so that a whole trace and a whole batch fit."""
    text = os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE", "")
    return max(SPANS_MAX, int(text) if text.isdecimal() else 0)


def _sdk_context(context: SpanContext) -> OtelContext:
    flags = TraceFlags(TraceFlags.SAMPLED if context.is_sampled else TraceFlags.DEFAULT)
    return OtelContext(context.trace_id, context.span_id, context.is_remote, flags)


def _within(parent: OtelContext | None) -> Context:
    """The context of a span with this parent, and without the thread's own context."""
    return set_span_in_context(NonRecordingSpan(parent), Context()) if parent is not None else Context()
