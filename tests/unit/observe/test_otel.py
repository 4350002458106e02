"""Traces reach the SDK: the same tree is the same trace, nothing waits for a collector, and what is lost is said."""

from __future__ import annotations

import gzip
import logging
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from sparkbolt import BasicBolt, Config, Topology, TopologyBuilder
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.user_metrics import MetricKind, UserMetric
from sparkbolt.errors import ConfigError
from sparkbolt.listeners import MicroBatchReport, Promotion
from sparkbolt.observe import otel
from sparkbolt.observe.otel_metrics import MetricSender
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.telemetry import OpenTelemetry, sink_for
from tests.patience import PATIENCE_SECS

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ENVIRONMENT = [
    "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_SDK_DISABLED",
    "OTEL_SERVICE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_TRACES_SAMPLER",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_METRICS_EXPORTER",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_METRIC_EXPORT_INTERVAL",
]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


def numbers() -> Iterator[list[int]]:
    yield from ([number] for number in range(10))


class Messages(GeneratorSpout):
    """Its records come with a ``traceparent``, if their number is even."""

    def trace_parents(self, positions: Sequence[int]) -> dict[int, str]:
        return {position: PARENT for position in positions if position % 2 == 0}

    def trace_attributes(self, source: str | None, position: int | None) -> dict[str, str | int]:
        return {"messaging.system": "test", "messaging.destination.name": str(source)}


class Refuse(BasicBolt):
    outputs = ["n"]

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] in (3, 4):
            raise ValueError(f"{tup['n']} is refused")
        collector.emit([tup["n"]])


class End(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        """Nothing."""


def topology(name: str = "numbers", spout: Any = None, **config: Any) -> Topology:
    builder = TopologyBuilder(name, Config(**{"max_attempts": 2, "trace": lambda tup: tup["n"] == 8} | config))
    builder.set_spout("numbers", spout or Messages(numbers, outputs=["n"]))
    builder.set_bolt("refuse", Refuse()).shuffle_grouping("numbers")
    builder.set_bolt("end", End()).fields_grouping("refuse", ["n"])
    return builder.build()


def reports_of(built: Topology) -> list[MicroBatchReport]:
    engine = LocalEngine(built)
    reports = []
    try:
        while not engine.coordinator.finished:
            promotion = engine.step()
            if promotion is None:
                engine.now_ms = engine.next_due_ms() or engine.now_ms + 1
            else:
                reports.append(MicroBatchReport(promotion, TopologyMetrics(), 250.0))
    finally:
        engine.close()
    return reports


def traces_of(built: Topology, reports: Sequence[MicroBatchReport], **options: Any) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    sink = OpenTelemetry(exporter, **options).build(built)
    for report in reports:
        sink.micro_batch(report)
    sink.close()
    return list(exporter.get_finished_spans())


def trees(spans: Sequence[ReadableSpan]) -> dict[tuple[Any, Any], ReadableSpan]:
    """The spans of trees, by position and attempt."""
    roots = [span for span in spans if span.name == "numbers"]
    return {(span.attributes["sparkbolt.position"], span.attributes["sparkbolt.attempt"]): span for span in roots}


def test_failed_retried_and_traced_trees_are_traces_and_no_others() -> None:
    built = topology()
    found = trees(traces_of(built, reports_of(built)))
    assert sorted(found) == [(3, 1), (3, 2), (4, 1), (4, 2), (8, 1)]
    outcomes = {key: span.attributes.get("sparkbolt.outcome") for key, span in found.items()}
    assert outcomes == {(3, 1): "retry", (3, 2): "dead_letter", (4, 1): "retry", (4, 2): "dead_letter", (8, 1): None}


def test_a_span_has_its_kind_its_status_its_event_and_its_scope() -> None:
    built = topology()
    spans = traces_of(built, reports_of(built))
    found = trees(spans)
    failed, acked = found[3, 2], found[8, 1]
    assert (failed.kind, failed.status.status_code) == (SpanKind.CONSUMER, StatusCode.ERROR)
    assert "ValueError: 3 is refused" in str(failed.status.description)
    [event] = failed.events
    assert (event.name, event.attributes["exception.type"]) == ("exception", "ValueError")
    assert "3 is refused" in event.attributes["exception.stacktrace"]
    assert acked.status.status_code is StatusCode.UNSET
    assert {span.instrumentation_scope.name for span in spans} == {"sparkbolt"}
    assert {span.resource.attributes["service.name"] for span in spans} == {"numbers"}
    of_failed = {span.name: span for span in spans if span.context.trace_id == failed.context.trace_id}
    assert of_failed["refuse[0]"].status.status_code is StatusCode.ERROR
    assert of_failed["refuse[0]"].kind is SpanKind.INTERNAL


def test_a_traceparent_becomes_the_parent_of_the_tree_when_the_message_is_traced() -> None:
    built = topology()
    found = trees(traces_of(built, reports_of(built)))
    for followed in ((4, 2), (8, 1)):
        assert found[followed].context.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
        parent = found[followed].parent
        assert parent is not None
        assert (parent.span_id, parent.is_remote) == (0xB7AD6B7169203331, True)
    assert found[4, 1].parent is found[3, 1].parent is found[3, 2].parent is None


def test_an_attempt_is_linked_to_the_attempt_before_it() -> None:
    built = topology()
    found = trees(traces_of(built, reports_of(built)))
    assert [link.context.span_id for link in found[4, 2].links] == [found[4, 1].context.span_id]
    assert not found[4, 1].links
    assert not found[8, 1].links


def test_the_same_tree_exported_twice_is_the_same_trace() -> None:
    built = topology()
    reports = reports_of(built)
    ids = [sorted((span.context.trace_id, span.context.span_id) for span in traces_of(built, reports)) for _ in "ab"]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == len(ids[0])


class Slow(SpanExporter):
    """A collector that does not answer until the test lets it."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.sent = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        assert self.may_answer.wait(PATIENCE_SECS)
        self.sent += len(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.may_answer.set()


def failed_often(built: Topology, count: int) -> MicroBatchReport:
    """A report with more failed trees than there are."""
    [tree] = [tree for report in reports_of(built) for tree in report.promotion.failed if tree.attempt == 2][:1]
    return MicroBatchReport(Promotion(1, failed=[tree] * count), TopologyMetrics(), 1.0)


def test_engine_does_not_wait_for_a_collector_and_counts_and_reports_overflow_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otel, "STORIES_MAX", 50)
    built, exporter = topology(), Slow()
    sink = OpenTelemetry(exporter).build(built)
    report = failed_often(built, 2_000)
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        for _ in range(3):
            sink.micro_batch(report)  # returns, though nobody answers
        assert sink.dropped >= 6_000 - 3 * 50
        exporter.may_answer.set()
        sink.close()
    said = [record.getMessage() for record in caplog.records if record.name == "sparkbolt"]
    assert said == [
        "more trees of topology 'numbers' end than can be traced: some are not; their number is logged at the end",
        f"of topology 'numbers', {sink.dropped} traces and 0 spans were not sent",
    ]
    assert exporter.sent > 0


def test_shutdown_does_not_wait_long_for_a_collector_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otel, "CLOSE_SECS", 0.01)
    built, exporter = topology(), Slow()
    sink = OpenTelemetry(exporter).build(built)
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        for report in reports_of(built):
            sink.micro_batch(report)
        sink.close()
    assert any("were not sent" in record.getMessage() for record in caplog.records)
    assert exporter.may_answer.wait(PATIENCE_SECS), "the exporter is shut down"


# The environment.


def test_an_exporter_that_is_not_installed_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(
        ConfigError, match=r"needs the exporter 'otlp_proto_grpc'.*opentelemetry-exporter-otlp-proto-grpc"
    ):
        OpenTelemetry().build(topology())
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        assert sink_for(topology(), None) is None, "the environment keeps no topology from starting"
    assert "they cannot be sent" in caplog.text


# The wire.


class Collector(ThreadingHTTPServer):
    """Receives traces as a collector does: OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receive)
        self.requests: list[ExportTraceServiceRequest] = []


class Receive(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
        assert isinstance(self.server, Collector)
        self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_collector_receives_the_traces_over_http_at_the_address_in_the_environment(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
    built = topology()
    sink = sink_for(built, None)
    assert sink is not None
    for report in reports_of(built):
        sink.micro_batch(report)
    sink.close()
    scopes = [scope for request in collector.requests for of in request.resource_spans for scope in of.scope_spans]
    assert {(scope.scope.name, scope.schema_url) for scope in scopes} == {("sparkbolt", otel.SCHEMA)}
    spans = [span for scope in scopes for span in scope.spans]
    roots = [span for span in spans if span.name == "numbers"]
    assert len(roots) == 5
    with_parent = [span for span in roots if span.parent_span_id]
    assert {(span.trace_id.hex(), span.parent_span_id.hex()) for span in with_parent} == {tuple(PARENT.split("-")[1:3])}
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    inner = [span for span in spans if span.name != "numbers"]
    assert all(by_id[span.parent_span_id].trace_id == span.trace_id for span in inner)
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)


class Counting(BasicBolt):
    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.seen = context.metrics.counter("seen", "Numbers", ["parity"])
        self.last = context.metrics.gauge("last")
        self.took = context.metrics.timer("took", buckets=(1, 5))

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen.labels(tup["n"] % 2).inc()
        self.last.set(tup["n"])
        self.took.observe(tup["n"])


class MetricsInMemory(MetricExporter):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[MetricsData] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any) -> MetricExportResult:
        self.sent.append(metrics_data)
        return MetricExportResult.SUCCESS

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        self.closed = True

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True


def test_metrics_of_components_reach_the_exporter_as_totals() -> None:
    builder = TopologyBuilder("counted")
    builder.set_spout("numbers", GeneratorSpout(numbers, outputs=["n"]))
    builder.set_bolt("counting", Counting()).global_grouping("numbers")
    topology = builder.build()
    exporter = MetricsInMemory()
    sink = OpenTelemetry(InMemorySpanExporter(), metric_exporter=exporter).build(topology)
    engine = LocalEngine(topology)
    while (promotion := engine.step()) is not None:
        sink.micro_batch(MicroBatchReport(promotion, engine.metrics(), 1.0))
    engine.close()
    sink.close()
    assert exporter.closed
    request = encode_metrics(exporter.sent[-1])
    [resource] = request.resource_metrics
    assert {one.key: one.value.string_value for one in resource.resource.attributes}["service.name"] == "counted"
    found = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert (found["seen"].description, found["seen"].sum.is_monotonic) == ("Numbers", True)
    totals = {
        next(one.value.string_value for one in point.attributes if one.key == "parity"): point.as_int
        for point in found["seen"].sum.data_points
    }
    assert totals == {"0": 5, "1": 5}
    assert [point.as_int for point in found["last"].gauge.data_points] == [9]
    [took] = found["took"].histogram.data_points
    assert (list(took.bucket_counts), list(took.explicit_bounds), took.sum, found["took"].unit) == (
        [2, 4, 4],
        [1, 5],
        45,
        "s",
    )
    assert {one.key for one in took.attributes} == {"sparkbolt.topology", "sparkbolt.component"}


def test_the_environment_names_the_exporter_of_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    assert otel.metric_exporters_of_environment() == []
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:1")
    [exporter] = otel.metric_exporters_of_environment()
    assert type(exporter).__name__ == "OTLPMetricExporter"
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    assert otel.metric_exporters_of_environment() == []
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "missing")
    with pytest.raises(ConfigError, match="OTEL_METRICS_EXPORTER names 'missing'"):
        otel.metric_exporters_of_environment()


def test_an_exporter_of_metrics_that_fails_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MetricsInMemory):
        def export(self, *_: Any, **__: Any) -> MetricExportResult:
            raise ConnectionError("refused")

    metrics = TopologyMetrics(
        {"bolt": ComponentMetrics(user={"seen": UserMetric(MetricKind.COUNTER, series={(): [1]})})}
    )
    sender = MetricSender("counted", otel.resource_of("counted"), [Failing()])
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        sender.update(metrics)
        sender._send()
        sender.close(PATIENCE_SECS)
    [record] = [record for record in caplog.records if "metrics of topology" in record.getMessage()]
    assert "ConnectionError: refused" in record.getMessage()
