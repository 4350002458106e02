"""The documents of a shop's topologies, for the fake operator.

``orders`` reads orders from Kafka, and fails, retries and lags: it is slow in its bolt ``enrich``, restarted a quarter
of an hour ago, has poison messages in topic ``orders``, and names that try to break out of HTML. ``clicks`` is
inactive, ``stock`` is dead, ``nightly`` has ended. ``hostile`` is made of scripts.
"""

from __future__ import annotations

import math
from typing import Any

from sparkbolt.api.metric_handles import MetricsRecorder, TaskMetrics
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.base.codec import encode
from sparkbolt.control.documents import (
    ALL_TIME,
    WINDOWS_SECS,
    ComponentDocument,
    ErrorDocument,
    EventDocument,
    Gist,
    MetricDocument,
    NowDocument,
    Numbers,
    PeekedDocument,
    SeriesPoint,
    StreamNumbers,
    TaskNumbers,
    TopologyDocument,
    TopologyEntry,
    TopologyState,
    WindowDocument,
)
from sparkbolt.control.metric_documents import metric_documents
from sparkbolt.control.problems import verdict_of
from sparkbolt.observe.history import MicroBatchRecord

NOW_MS = 1_767_270_000_000
"""2026-01-01 12:20:00 UTC."""
MINUTE = 60_000
MIB = 1 << 20
NASTY = "<script>alert('x')</script>"
HOSTILE = f"{NASTY}\"'&{{{{7*7}}}}"
HOME = "/var/lib/sparkbolt"
ORDERS, CLICKS, STOCK, NIGHTLY = (
    "orders-7-1767261600",
    "clicks-2-1767180000",
    "stock-4-1767240000",
    "nightly-31-1767225600",
)
TRACE = """Traceback (most recent call last):
  File "/srv/shop/orders.py", line 88, in execute
    price = self.prices[order["sku"]]
            ~~~~~~~~~~~^^^^^^^^^^^^^^
KeyError: 'sku'
"""


def gist(**given: Any) -> Gist:
    empty: dict[str, Any] = {**dict.fromkeys(Gist.__annotations__, 0), "lag": None, "lags": {}, "lag_growth": {}}
    if given.get("lag") is not None:
        given.setdefault("lags", {"messages": given["lag"]})
    return Gist(**{**empty, **given})  # type: ignore[typeddict-item]


def entry(name: str, state: str, number: int = 1, **given: Any) -> TopologyEntry:
    started_ms = given.pop("started_ms", NOW_MS - 120 * MINUTE)
    id_, runs = f"{name}-{number}-{started_ms // 1000}", TopologyState.of(state).runs
    known: dict[str, Any] = {
        "id": id_, "name": name, "state": state, "why": None, "started_ms": started_ms, "ended_ms": None,
        "beat_ms": NOW_MS, "exit_code": None, "drained": None, "host": "shop-1", "user": "ann", "pid": 4711,
        "pid_started": 1.0, "pid_space": "", "checkpoint": f"/data/checkpoints/{name}",
        "control": f"unix:/run/user/1000/{id_}.sock" if runs else None,
        "spark_ui": "http://shop-1:4040" if runs else None, "application_id": "local-1767261600", "master": "local[4]",
        "version": "0.1.0", "log_directory": f"/var/log/sparkbolt/{name}",
        "command": ["sparkbolt", "run", f"{name}:topology", "--checkpoint", f"/data/checkpoints/{name}"],
        "gist": gist(),
    }  # fmt: skip
    made = TopologyEntry(**{"directory": given.get("checkpoint", known["checkpoint"]), **known, **given})  # type: ignore[typeddict-item]
    return {**made, "verdict": verdict_of(made)}


def entries() -> list[TopologyEntry]:
    busy = gist(
        micro_batches=8_112, emitted=9_841_220, executed=48_204_117, acked=9_802_733, failed=31_207, given_up=23,
        errors=31_411, open_trees=5_480, retries=214, lag=48_230, rate=1_184.0,
    )  # fmt: skip
    clicks = gist(micro_batches=90_210, emitted=120_331_870, acked=120_331_870, lag=0)
    earlier = NOW_MS - 140 * MINUTE
    return [
        entry("orders", "active", 7, started_ms=earlier, gist=busy),
        entry(
            "orders", "failed", 6, started_ms=NOW_MS - 807 * MINUTE, why="a user function raised",
            ended_ms=NOW_MS - 600 * MINUTE,
        ),
        entry("orders", "ended", 5, started_ms=NOW_MS - 1_473 * MINUTE, ended_ms=NOW_MS - 1_200 * MINUTE),
        entry("clicks", "inactive", 2, started_ms=NOW_MS - 1_500 * MINUTE, pid=4802, gist=clicks),
        entry(
            "stock", "dead", 4, started_ms=NOW_MS - 500 * MINUTE, pid=815, beat_ms=NOW_MS - 47 * MINUTE,
            ended_ms=NOW_MS - 47 * MINUTE, why="its process (815 on shop-1) is gone and has not reported how it ended",
            gist=gist(micro_batches=1_204, emitted=88_100, acked=88_040, open_trees=60),
        ),
        entry(
            "nightly", "ended", 31, started_ms=NOW_MS - 740 * MINUTE, ended_ms=NOW_MS - 712 * MINUTE, pid=99,
            why="its spouts are exhausted, and every tree is finished", exit_code=0, checkpoint=None,
            gist=gist(micro_batches=310, emitted=1_882_166, acked=1_882_166),
        ),
    ]  # fmt: skip


def component(id_: str, kind: str, type_: str, level: int, first_task: int, **given: Any) -> ComponentDocument:
    known: dict[str, Any] = {
        "id": id_, "kind": kind, "type": type_, "parallelism": 4, "level": level, "fused_with": None, "stateful": False,
        "streams": {}, "inputs": [], "task_numbers": list(range(first_task, first_task + 8)), "settings": {},
        "position_unit": "positions" if kind == "spout" else "",
    }  # fmt: skip
    return ComponentDocument(**{**known, **given})  # type: ignore[typeddict-item]


def way(sender: str, grouping: str, *fields: str, stream: str = "default") -> dict[str, Any]:
    return {"component": sender, "stream": stream, "grouping": grouping, "fields": list(fields), "feedback": False}


def components() -> list[ComponentDocument]:
    kafka = "sparkbolt.spouts.kafka.KafkaSpout"
    return [
        component(
            "orders", "spout", kafka, 0, 1, streams={"default": ["customer", "sku", "amount"]},
            settings={"max_spout_pending": 5000, "trace": 0.001},
        ),
        component("refunds", "spout", kafka, 0, 5, parallelism=2, streams={"default": ["order", "amount"]}),
        component(
            "validate", "bolt", "shop.orders.Validate", 0, 7, inputs=[way("orders", "LOCAL_OR_SHUFFLE")],
            streams={"default": ["customer", "sku", "amount"], "rejected": ["order", "why"]}, fused_with="orders",
        ),
        component(
            "enrich", "bolt", "shop.orders.Enrich", 1, 11, parallelism=8, inputs=[way("validate", "SHUFFLE")],
            streams={"default": ["customer", "sku", "amount", "price"]},
        ),
        component(
            "revenue", "bolt", "shop.orders.Revenue", 2, 19, stateful=True, streams={"default": ["minute", "sum"]},
            inputs=[way("enrich", "FIELDS", "customer"), way("refunds", "FIELDS", "order")],
        ),
        component(
            "alerts", "bolt", "shop.orders.Alerts", 3, 23, parallelism=1,
            inputs=[way("revenue", "GLOBAL"), way("validate", "SHUFFLE", stream="rejected")],
        ),
        component("__acker", "system", "", 4, 0, parallelism=2),
    ]  # fmt: skip


def percentiles(p50: float, p99: float, p999: float, most: float) -> dict[str, float | None]:
    return {"p50": p50, "p99": p99, "p999": p999, "max": most}


def numbers(**given: Any) -> Numbers:
    none: dict[str, float | None] = dict.fromkeys(("p50", "p99", "p999", "max"))
    known: dict[str, Any] = {
        "emitted": 0, "transferred": 0, "executed": 0, "acked": 0, "failed": 0, "given_up": 0, "retried": 0,
        "errors": 0, "execute_ms": 0.0, "execute_latency_ms": None, "process_latency_ms": None,
        "complete_latency_ms": None, "execute": none, "complete": none, "capacity": None,
    }  # fmt: skip
    return Numbers(**{**known, **given})  # type: ignore[typeddict-item]


def window(name: str, secs: float) -> WindowDocument:
    n = int(1_184 * secs)
    bad = int(secs * 0.9)
    of = {
        "orders": numbers(
            emitted=n, transferred=n, acked=n - bad, failed=bad, retried=bad - 2, given_up=2, capacity=0.08,
            complete_latency_ms=3_120.0, complete=percentiles(2_410.0, 9_870.0, 17_400.0, 29_310.0),
            complete_buckets=[[900.0, 10], [1100.0, 70], [31_250.0, 20]],
        ),
        "refunds": numbers(
            emitted=n // 40, transferred=n // 40, acked=n // 40, complete_latency_ms=2_040.0, capacity=0.01,
            complete=percentiles(1_900.0, 4_100.0, 4_900.0, 5_120.0),
        ),
        "validate": numbers(
            emitted=n, transferred=n, executed=n, acked=n, execute_latency_ms=0.034, process_latency_ms=0.05,
            execute=percentiles(0.03, 0.09, 0.4, 3.1), capacity=0.04, execute_ms=n * 0.034,
        ),
        "enrich": numbers(
            emitted=n - bad, transferred=n - bad, executed=n, acked=n - bad, failed=bad, errors=bad, capacity=0.96,
            execute_latency_ms=6.4, process_latency_ms=6.6, execute=percentiles(4.8, 31.0, 88.0, 912.0),
            execute_ms=n * 6.4, execute_buckets=[[0.11, 4000], [900.0, 3]],
        ),
        "revenue": numbers(
            emitted=n // 60, transferred=n // 60, executed=n, acked=n, execute_latency_ms=0.21, capacity=0.27,
            process_latency_ms=1_020.0, execute=percentiles(0.2, 0.6, 1.9, 14.0), execute_ms=n * 0.21,
        ),
        "alerts": numbers(
            executed=n // 55, acked=n // 55, execute_latency_ms=0.9, process_latency_ms=0.9, capacity=0.02,
            execute=percentiles(0.8, 2.0, 3.0, 3.3), execute_ms=n / 60,
        ),
        "__acker": numbers(executed=5 * n, execute_latency_ms=0.003, capacity=0.06, execute_ms=0.015 * n),
    }  # fmt: skip
    tasks = [
        TaskNumbers(
            component=one["id"], task=task, emitted=sums["emitted"] // one["parallelism"],
            transferred=sums["transferred"] // one["parallelism"], executed=sums["executed"] // one["parallelism"],
            acked=sums["acked"] // one["parallelism"], failed=sums["failed"] if task == 3 else 0,
            execute_ms=sums["execute_ms"] / one["parallelism"], execute_latency_ms=sums["execute_latency_ms"],
            process_latency_ms=sums["process_latency_ms"], complete_latency_ms=sums["complete_latency_ms"],
            capacity=None if sums["capacity"] is None else sums["capacity"] * (1 - (task * 7 % 5) / 12),
        )
        for one in components()
        if (sums := of[one["id"]])
        for task in range(one["parallelism"])
    ]  # fmt: skip
    streams: list[StreamNumbers] = []
    for one in components():
        sums = of[one["id"]]
        ways = [("", stream) for stream in one["streams"]]
        ways += [(each["component"], each["stream"]) for each in one["inputs"]]
        for sender, stream in ways:
            came = (
                n // 40 if "refunds" in (sender, one["id"]) else n // 900 if stream == "rejected" else sums["executed"]
            )
            streams.append(
                StreamNumbers(
                    component=one["id"], sender=sender, stream=stream, executed=came if sender else 0,
                    emitted=0 if sender else (n // 900 if stream == "rejected" else sums["emitted"]),
                    transferred=0 if sender else sums["transferred"], acked=came if sender else sums["acked"],
                    failed=sums["failed"], execute_latency_ms=sums["execute_latency_ms"],
                    process_latency_ms=sums["process_latency_ms"], complete_latency_ms=sums["complete_latency_ms"],
                )
            )  # fmt: skip
    parts = {"plan": 0.01, "read": 0.16, "level 1": 0.61, "level 2": 0.09, "level 3": 0.02}
    parts |= {"acker": 0.03, "stage": 0.02, "commit": 0.05, "promotion": 0.01}
    return WindowDocument(
        window=name, secs=secs, components=of, tasks=tasks, streams=streams, micro_batches=max(1, int(secs)),
        parts_ms={part: share * secs * 1000 for part, share in parts.items()},
    )  # fmt: skip


def errors() -> list[ErrorDocument]:
    return [
        ErrorDocument(
            time_ms=NOW_MS - 52 * MINUTE, component="orders", task=2, host="shop-1", count=1, traceback=None,
            text="offsets 1,204 to 1,310 of orders-2 are no longer in Kafka: its retention passed them",
        ),
        ErrorDocument(
            time_ms=NOW_MS - 21 * MINUTE, component="enrich", task=5, host="shop-2", count=31, traceback=TRACE,
            text=f"ValueError: not a price: {NASTY}",
        ),
        ErrorDocument(
            time_ms=NOW_MS - 41_000, component="enrich", task=3, host="shop-1", count=31_380, traceback=TRACE,
            text="KeyError: 'sku'",
        ),
    ]  # fmt: skip


def events() -> list[EventDocument]:
    told = [
        (140, "started", "started with local[4], 4 cores", None),
        (96, "set", "max-spout-pending of orders is 5000 (was 20000)", "ui from 127.0.0.1"),
        (48, "deactivated", "its spouts emit nothing", "cli of ann"),
        (46, "activated", "its spouts emit again", "cli of ann"),
        (31, "outage", "enrich cannot reach prices.internal: connection refused", None),
        (29, "recovered", "enrich reached prices.internal after 1 min 52 s", None),
        (
            16,
            "restarted",
            "the query failed: OSError: no space left on device; begins at micro-batch 7204",
            None,
        ),
        (4, "letters", "2 dead letters were written: 'sku' is missing", None),
    ]
    return [EventDocument(time_ms=NOW_MS - m * MINUTE, kind=kind, text=text, by=by) for m, kind, text, by in told]


def now() -> NowDocument:
    lag = {f"orders-{number}": value for number, value in enumerate((21_402, 14_118, 9_022, 2_470))}
    return NowDocument(
        time_ms=NOW_MS, open_trees=5_480, retries=214, hung=[], outages=[], full=[], repeats=0,
        trouble=None, waits_for=None,
        micro_batch={
            "micro_batch_id": 8_112, "elapsed_ms": 740.0,
            "doing": "micro-batch 8112 runs for 1 s: level 1 of 3, 3,100 executed so far",
        },
        lag={"orders": lag, "refunds": {"refunds-0": 1_204, "refunds-1": 14}},
        lag_secs={},
        pending={"orders": 5_420, "refunds": 60},
        watermarks={
            "revenue": {"watermark_ms": NOW_MS - 9_000, "behind_ms": 9_000, "windows": 8_421, "late_tuples": 37}
        },
        state={"rows": 88_214, "memory_bytes": 61 * MIB},
        memory=[
            {"process": "driver", "host": "shop-1", "pid": 4711, "bytes": 231 * MIB},
            {"process": "jvm", "host": "shop-1", "pid": 4720, "bytes": 1_410 * MIB},
            {"process": "worker", "host": "shop-1", "pid": 4801, "bytes": 188 * MIB},
            {"process": "worker", "host": "shop-1", "pid": 4802, "bytes": 190 * MIB},
        ],
        slowest={"root": root(4), "latency_ms": 29_310.0, "time_ms": NOW_MS - 9 * MINUTE},
    )  # fmt: skip


def metrics() -> dict[str, list[MetricDocument]]:
    """What ``enrich`` declares, as its recorder would have it."""
    recorder = MetricsRecorder()
    own = TaskMetrics(recorder, "enrich", 0)
    requests = own.counter("requests", "Requests to the price service", ["status"])
    requests.labels(200).inc(165_000_000)
    requests.labels(503).inc(126_000)
    own.gauge("cache_entries", "Prices in the cache").set(5_120)
    lookup = own.timer("lookup", "Time of a request", buckets=(0.001, 0.01, 0.1))
    for secs in (0.0005, 0.004, 0.004, 0.25):
        lookup.observe(secs)
    own.counter("timeouts")
    counts = {component: ComponentMetrics(user=user) for component, user in recorder.take().items()}
    return metric_documents(TopologyMetrics(counts))


def document(one: TopologyEntry) -> TopologyDocument:
    windows = {name: window(name, secs) for name, secs in WINDOWS_SECS.items()}
    windows[ALL_TIME] = window(ALL_TIME, 140_000.0)
    settings = {
        "message_timeout_secs": 30, "max_spout_pending": None, "micro_batch_target_ms": 1000, "log_level": "info",
        "max_attempts": 5, "acker_tasks": 2, "dead_letters": "checkpoint:", "debug": False,
    }  # fmt: skip
    return TopologyDocument(
        entry=one, live=TopologyState.of(one["state"]).runs, components=components(), settings=settings,
        windows=windows, now=now(), metrics={}, errors=errors(), events=events(),
    )  # fmt: skip


def point(time_ms: int, secs: float) -> SeriesPoint:
    minutes = (time_ms - NOW_MS) / MINUTE
    runs = not -17 < minutes < -15.5 and not -48 < minutes < -46
    wave = math.sin(minutes / 6.5) * 0.12 + math.sin(minutes * 1.9) * 0.05
    slow = 1.9 if -31 < minutes < -29 else 1.0
    acked = int(1_184 * secs * (1 + wave) / slow) if runs else 0
    lag = int(max(900.0, 8_000 + (minutes + 60) * 900 * (0.4 + max(0.0, (minutes + 31) / 31)))) if runs else 48_000
    bad = int(secs * (8 if slow > 1 else 0.9) * (1 + math.sin(minutes * 3))) if runs else 0
    split = {f"orders-{number}": int(lag * share) for number, share in enumerate((0.45, 0.3, 0.19, 0.06))}
    usual = {"p50": 2_410.0, "p99": 7_870.0, "p999": 17_400.0, "max": 21_000.0}
    return SeriesPoint(
        time_ms=time_ms, secs=secs if runs else 0.0, emitted=acked, executed=acked * 4, acked=acked, failed=bad,
        given_up=0, errors=bad, micro_batches=int(secs), micro_batch_ms=1_010.0 * slow * (1 + wave),
        open_trees=int(5_200 * slow * (1 + wave)), lag=lag,
        complete={name: value * slow * (1 + wave) if runs else None for name, value in usual.items()},
        capacity={"validate": 0.04, "enrich": min(1.0, 0.93 + wave / 3), "revenue": 0.27 + wave, "alerts": 0.02},
        components={
            "orders": {"emitted": acked, "failed": bad, "lag": lag},
            "refunds": {"emitted": acked / 40, "lag": 1_204.0 + 300 * wave},
            **{id_: {"executed": acked, "failed": bad} for id_ in ("validate", "enrich", "revenue")},
        },
        memory={"driver": 231 * MIB, "jvm": int((1_300 + 200 * wave) * MIB), "workers": 720 * MIB},
        lags={"orders": split},
    )  # fmt: skip


def micro_batch(number: int) -> dict[str, Any]:
    wave = 1 + math.sin(number * 0.9) * 0.2 + (1.1 if number % 13 == 4 else 0.0)
    shares = {"plan": 9, "read": 162, "level 1": 610 * wave, "level 2": 90, "level 3": 18}
    shares |= {"acker": 31, "stage": 22, "commit": 54, "promotion": 11}
    at, parts = 0.0, []
    for name, took in shares.items():
        parts.append((name, at, at + took))
        at += took
    record = MicroBatchRecord(
        micro_batch_id=number, began_ms=NOW_MS - (8_112 - number) * 1_020, elapsed_ms=at, parts=parts,
        busy_ms={name: 3.4 * (end - start) for name, start, end in parts}, emitted=1_204, executed=4_816, acked=1_190,
        failed=number % 3, repeats=0, rows=96, bytes=3 * MIB, spark_ms={"addBatch": at - 60, "triggerExecution": at},
    )  # fmt: skip
    return dict(encode(record))


def root(number: int) -> str:
    return f"{(0x9F3C5A1E00B7D241 + number * 0x1F0E3C55AA01) % (1 << 64):016x}"


def hop(ago_ms: int, batch: int, task: str, source: str = "", values: str = "", **given: Any) -> dict[str, Any]:
    id_, _, index = task.rstrip("]").partition("[")
    known = {
        "micro_batch_id": batch, "now_ms": NOW_MS - ago_ms, "component": id_, "task": int(index), "tuples": 1,
        "acked": 0, "failed": 0, "held": 0, "source": source, "values": values, "emitted": {},
    }  # fmt: skip
    return {**known, **given}


def holder(number: int) -> str:
    """The task that holds a tuple of an open tree."""
    return f"revenue[{0 if number % 3 == 0 else 1}]"


def hops(number: int, state: str) -> list[dict[str, Any]]:
    record = "{'customer': 'c-118', 'sku': 'k-7', 'amount': 2}"
    begun = [
        hop(9_000, 8_101, "orders[2]", "", record, tuples=0, emitted={"default": 1}),
        hop(9_000, 8_101, "validate[2]", "orders[2]", record, acked=1, emitted={"default": 2, "rejected": 1}),
        hop(7_960, 8_102, "enrich[3]", "validate[2]", record, acked=1, emitted={"default": 1}),
        hop(7_960, 8_102, "alerts[0]", "validate[2]", "{'order': 17, 'why': 'no price'}", acked=1),
    ]
    ends = {
        "failed": [hop(6_900, 8_103, "enrich[6]", "validate[2]", "{'customer': 'c-118', 'amount': 2}", failed=1)],
        "open": [hop(6_900, 8_103, holder(number), "enrich[3]", record, held=1)],
        "acked": [hop(6_900, 8_103, "revenue[1]", "enrich[3]", record, acked=1)],
    }
    return [*begun, *ends[state]]


def story(number: int, state: str) -> dict[str, Any]:
    is_over = state != "open"
    why = {
        "failed": "failed by enrich[6] in micro-batch 8103: KeyError: 'sku': {'customer': 'c-118', 'amount': 2}",
        "open": f"held by {holder(number)} in micro-batch 8103",
        "acked": "",
    }
    source = "orders/3" if number else f"orders/{NASTY}"
    return {
        "root": root(number), "task_number": 3, "sequence": 1_000 + number, "component": "orders", "task": 2,
        "state": state, "source": source, "position": 40_118 + number, "message_id": None, "attempt": 1 + number % 5,
        "started_in": 8_101, "started_ms": NOW_MS - 9_000 - 1_700 * number, "ended_in": 8_103 if is_over else None,
        "ended_ms": NOW_MS - 6_900 - 1_700 * number if is_over else None, "why": why[state],
        "cause": "exception" if state == "failed" else None,
        "outcome": ("dead_letter" if number % 5 == 4 else "retry") if state == "failed" else None,
        "traceback": TRACE if state == "failed" else None, "hops": hops(number, state),
    }  # fmt: skip


def letter(number: int) -> dict[str, Any]:
    attempts = [
        {
            "number": each, "root": root(10 * number + each), "cause": "exception", "reason": "KeyError: 'sku'",
            "component": "enrich", "task": 6, "micro_batch_id": 8_000 + each, "traceback": TRACE if each == 5 else None,
            "started_ms": NOW_MS - (20 + number) * MINUTE + each * 40_000,
            "ended_ms": NOW_MS - (20 + number) * MINUTE + each * 40_000 + 2_100,
        }
        for each in (1, 2, 3, 4, 5)
    ]  # fmt: skip
    body = f'{{"customer": "c-{number}", "amount": {number % 7}, "note": "{NASTY if number == 1 else "call back"}"}}'
    return {
        "id": f"{number:032x}", "topology": "orders", "version": "5be01c22f0a9d371", "component": "orders", "task": 2,
        "attempts": attempts, "attempts_left_out": 0, "source": "orders/3", "position": 40_118 + number, "end": None,
        "message_id": None, "stream": "default", "fields": ["customer", "sku", "amount"],
        "tuples": [[f"c-{number}" if number != 1 else NASTY, None, number % 7]], "note": "",
        "raw": {"value": body, "key": f"c-{number}", "headers": [["source", "web"]], "timestamp_ms": NOW_MS},
        "replayed": number % 9 == 7, "discarded": number % 9 == 5,
    }  # fmt: skip


def log_line(text: str, level: str = "WARNING", ago_ms: int = 0, **fields: Any) -> dict[str, Any]:
    found = {"component": None, "task": None, "micro_batch": None, "root": None, **fields}
    return {"time_ms": NOW_MS - ago_ms, "level": level, "topology": "orders", **found, "text": text}


def peeked(number: int) -> PeekedDocument:
    return PeekedDocument(
        serial=number,
        time_ms=NOW_MS - 1800,
        micro_batch_id=8_108,
        component="enrich",
        task=2,
        stream="default",
        sender="",
        values=f"{{'sku': 's-{number}'}}",
    )


def log_lines() -> list[dict[str, Any]]:
    texts = [
        ("INFO", None, "micro-batch 8111 is promoted: 1,204 emitted, 4,816 executed in 1.0 s"),
        ("WARNING", "enrich", "KeyError: 'sku': {'customer': 'c-118'}; its message is given again in 4 s"),
        ("PRINT", "alerts", f"alert: revenue of 12:19 is 41 % below yesterday's {NASTY}"),
        ("ERROR", "enrich", "cannot reach prices.internal: connection refused; its trees wait until it is back"),
        ("DEBUG", "revenue", "window of 12:18 to 12:19: 1,204 tuples"),
    ]
    return [
        log_line(
            text, level, 900 * (60 - number), component=of, task=number % 4 if of else None,
            micro_batch=8_050 + number, root=root(3) if level == "WARNING" else None,
        )
        for number in range(60)
        for level, of, text in [texts[number * 7 % 5]]
    ]  # fmt: skip


def hostile() -> TopologyDocument:
    """A topology whose name, component, errors and settings are scripts."""
    found = document(entry(HOSTILE, "active", why=HOSTILE))
    found["components"][1]["id"] = NASTY
    for error in found["errors"]:
        error["text"] = error["traceback"] = HOSTILE
        error["component"] = NASTY
    found["settings"] = {HOSTILE: HOSTILE}
    return found
