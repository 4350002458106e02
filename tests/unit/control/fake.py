"""A fake operator with three topologies: one that works with a slow bolt, one that died, one that has ended.

``words`` counts the words of a Kafka topic. Its bolt ``enrich`` is slow (capacity 0.97), one of its messages in a
hundred fails, and it lags. ``orders`` died two hours ago without a word. ``nightly`` has finished.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from sparkbolt.base.codec import encode
from sparkbolt.base.file_access import Files
from sparkbolt.control.documents import (
    ALL_TIME,
    WINDOWS_SECS,
    Answer,
    ComponentDocument,
    ErrorDocument,
    EventDocument,
    Gist,
    MemoryDocument,
    NowDocument,
    Numbers,
    SeriesDocument,
    SeriesPoint,
    StreamNumbers,
    StreamSubscription,
    TaskNumbers,
    TopologyDocument,
    TopologyEntry,
    TopologyState,
    WindowDocument,
)
from sparkbolt.control.home import chosen
from sparkbolt.control.kept_state import KeptState, StateQuestions
from sparkbolt.control.problems import verdict_of
from sparkbolt.control.questions import Views
from sparkbolt.observe.history import MicroBatchRecord
from tests.unit.kept import KeptInMemory

NOW_MS = 1_767_270_000_000
"""2026-01-01 12:20:00 UTC."""
HOUR_MS = 3_600_000
HOME = "/var/lib/sparkbolt"
MB = 1 << 20
ROOT = "9f3c5a1e00b7d241"


def gist(**given: Any) -> Gist:
    empty = Gist(
        micro_batches=0, emitted=0, executed=0, acked=0, failed=0, set_aside=0, errors=0, open_trees=0, retries=0,
        lag=None, lags={}, lag_growth={}, rate=0.0,
    )  # fmt: skip
    if given.get("lag") is not None:
        given.setdefault("lags", {"messages": given["lag"]})
    return Gist(**{**empty, **given})


def entry(name: str, state: TopologyState, number: int = 1, **given: Any) -> TopologyEntry:
    started_ms = given.pop("started_ms", NOW_MS - 2 * HOUR_MS)
    found: dict[str, Any] = {
        "id": f"{name}-{number}-{started_ms // 1000}",
        "name": name,
        "state": state,
        "why": None,
        "started_ms": started_ms,
        "ended_ms": None,
        "beat_ms": NOW_MS,
        "exit_code": None,
        "drained": None,
        "host": "bolt-1",
        "user": "ann",
        "pid": 4711,
        "pid_started": 12345.0,
        "pid_space": "",
        "checkpoint": f"/data/{name}",
        "control": f"unix:/run/sparkbolt/{name}.sock" if state.runs else None,
        "spark_ui": "http://bolt-1:4040" if state.runs else None,
        "application_id": "local-1767262800000",
        "master": "local[4]",
        "version": "0.1.0",
        "log_directory": None,
        "command": ["sparkbolt", "run", f"{name}:topology", "--checkpoint", f"/data/{name}"],
        "gist": gist(),
    }
    made = TopologyEntry(**{**found, **given})  # type: ignore[typeddict-item]
    return {**made, "verdict": verdict_of(made)}


def entries() -> list[TopologyEntry]:
    counts = gist(
        micro_batches=1_412, emitted=12_345_678, executed=86_420_001, acked=12_220_003, failed=118_009, set_aside=12,
        errors=118_021, open_trees=7_666, retries=420, lag=1_234_567, rate=1_204.0,
    )  # fmt: skip
    dead = gist(micro_batches=96, emitted=4_096, executed=8_192, acked=4_090, open_trees=6)
    done = gist(micro_batches=5, emitted=132_166, executed=624_332, acked=132_166)
    return [
        entry("words", TopologyState.ACTIVE, gist=counts),
        entry(
            "orders",
            TopologyState.DEAD,
            why="its process (815) is gone and has not reported how it ended",
            pid=815,
            started_ms=NOW_MS - 26 * HOUR_MS,
            beat_ms=NOW_MS - 2 * HOUR_MS,
            ended_ms=NOW_MS - 2 * HOUR_MS,
            gist=dead,
        ),
        entry(
            "nightly",
            TopologyState.ENDED,
            why="its spouts are exhausted, and every tree is finished",
            pid=99,
            started_ms=NOW_MS - 10 * HOUR_MS,
            beat_ms=NOW_MS - 9 * HOUR_MS,
            ended_ms=NOW_MS - 9 * HOUR_MS,
            exit_code=0,
            checkpoint=None,
            gist=done,
        ),
    ]


def _component(id_: str, kind: str, type_: str, level: int, task: int, **given: Any) -> ComponentDocument:
    found: dict[str, Any] = {
        "id": id_, "kind": kind, "type": type_, "parallelism": 2, "level": level, "fused_with": None, "stateful": False,
        "streams": {}, "inputs": [], "task_numbers": [task, task + 1], "settings": {},
        "position_unit": "positions" if kind == "spout" else "",
    }  # fmt: skip
    return ComponentDocument(**{**found, **given})  # type: ignore[typeddict-item]


def components() -> list[ComponentDocument]:
    def subscribed(to: str, grouping: str, *fields: str) -> list[StreamSubscription]:
        own = list(fields)
        return [StreamSubscription(component=to, stream="default", grouping=grouping, fields=own, feedback=False)]

    return [
        _component("lines", "spout", "sparkbolt.spouts.kafka.KafkaSpout", 0, 1, streams={"default": ["key", "value"]}),
        _component(
            "split", "bolt", "words.Split", 1, 3, fused_with="lines", streams={"default": ["word"]},
            inputs=subscribed("lines", "LOCAL_OR_SHUFFLE"),
        ),
        _component(
            "enrich", "bolt", "words.Enrich", 1, 5, streams={"default": ["word", "language"]},
            inputs=subscribed("split", "SHUFFLE"),
        ),
        _component("count", "bolt", "words.Count", 2, 7, stateful=True, inputs=subscribed("enrich", "FIELDS", "word")),
        _component("__acker", "system", "", 3, 0, parallelism=1),
    ]  # fmt: skip


def numbers(**given: Any) -> Numbers:
    none: dict[str, float | None] = {"p50": None, "p99": None, "p999": None, "max": None}
    found: dict[str, Any] = {
        "emitted": 0, "transferred": 0, "executed": 0, "acked": 0, "failed": 0, "set_aside": 0, "retried": 0,
        "errors": 0, "execute_ms": 0.0, "execute_latency_ms": None, "process_latency_ms": None,
        "complete_latency_ms": None, "execute": none, "complete": none, "capacity": None,
    }  # fmt: skip
    return Numbers(**{**found, **given})  # type: ignore[typeddict-item]


def _percentiles(p50: float, p99: float, p999: float, most: float) -> dict[str, float | None]:
    return {"p50": p50, "p99": p99, "p999": p999, "max": most}


def window(name: str, secs: float, scale: int) -> WindowDocument:
    """A window with ``scale`` times the numbers of ten minutes."""
    k = 720_000 * scale
    of = {
        "lines": numbers(
            emitted=k, transferred=k, acked=k - 7_000 * scale, failed=7_000 * scale, set_aside=scale,
            retried=6_999 * scale, complete_latency_ms=2_310.0,
            complete=_percentiles(1_900.0, 9_100.0, 15_250.0, 31_004.5),
        ),
        "split": numbers(
            emitted=5 * k, transferred=5 * k, executed=k, acked=k, execute_ms=k * 0.021, execute_latency_ms=0.021,
            process_latency_ms=0.4, execute=_percentiles(0.02, 0.07, 0.2, 3.1), capacity=0.0126,
        ),
        "enrich": numbers(
            emitted=5 * k - 7_000, transferred=5 * k - 7_000, executed=5 * k, acked=5 * k - 7_000, failed=7_000,
            errors=7_000, execute_ms=k * 5 * 0.32, execute_latency_ms=0.32, process_latency_ms=41.8,
            execute=_percentiles(0.11, 4.9, 12.0, 870.0), capacity=0.97,
        ),
        "count": numbers(
            executed=5 * k - 7_000, acked=5 * k - 7_000, execute_ms=k * 5 * 0.004, execute_latency_ms=0.004,
            process_latency_ms=1.2, execute=_percentiles(0.004, 0.01, 0.05, 0.9), capacity=0.012,
        ),
        "__acker": numbers(executed=16 * k, execute_ms=k * 0.05, execute_latency_ms=0.003, capacity=0.06),
    }  # fmt: skip
    tasks = [
        TaskNumbers(
            component=id_, task=task, emitted=one["emitted"] // 2, transferred=one["transferred"] // 2,
            executed=one["executed"] // 2, acked=one["acked"] // 2, failed=one["failed"] // 2,
            execute_ms=one["execute_ms"] / 2, execute_latency_ms=one["execute_latency_ms"],
            process_latency_ms=one["process_latency_ms"], complete_latency_ms=one["complete_latency_ms"],
            capacity=None if one["capacity"] is None else one["capacity"] * (1 - task * 0.25),
        )
        for id_, one in of.items()
        for task in (0, 1)
        if id_ != "__acker"
    ]  # fmt: skip
    senders = {"split": "lines", "enrich": "split", "count": "enrich"}
    streams = [
        StreamNumbers(
            component=id_, sender=sender, stream="default", emitted=0, transferred=0, executed=of[id_]["executed"],
            acked=of[id_]["acked"], failed=of[id_]["failed"], execute_latency_ms=of[id_]["execute_latency_ms"],
            process_latency_ms=of[id_]["process_latency_ms"], complete_latency_ms=None,
        )
        for id_, sender in senders.items()
    ] + [
        StreamNumbers(
            component=id_, sender="", stream="default", emitted=of[id_]["emitted"], transferred=of[id_]["transferred"],
            executed=0, acked=of[id_]["acked"] if id_ == "lines" else 0,
            failed=of[id_]["failed"] if id_ == "lines" else 0, execute_latency_ms=None, process_latency_ms=None,
            complete_latency_ms=of[id_]["complete_latency_ms"],
        )
        for id_ in ("lines", "split", "enrich")
    ]  # fmt: skip
    parts = {
        "plan": 4_000.0, "read": 61_000.0, "level 1": 402_000.0, "level 2": 51_000.0, "acker": 12_000.0,
        "stage": 9_000.0, "commit": 21_000.0, "promotion": 6_000.0,
    }  # fmt: skip
    return WindowDocument(
        window=name,
        secs=secs,
        components=of,
        tasks=tasks,
        streams=streams,
        parts_ms={part: ms * scale for part, ms in parts.items()},
        micro_batches=118 * scale,
    )


def errors() -> list[ErrorDocument]:
    trace = "Traceback (most recent call last):\n  File \"words.py\", line 40, in execute\nKeyError: 'language'\n"
    return [
        ErrorDocument(
            time_ms=NOW_MS - 300_000, component="lines", task=0, text="offsets 7 to 9 of lines-0 are gone",
            traceback=None, host="bolt-1", count=1,
        ),
        ErrorDocument(
            time_ms=NOW_MS - 4_000, component="enrich", task=1, text="KeyError: 'language'", traceback=trace,
            host="bolt-1", count=7_000,
        ),
    ]  # fmt: skip


def events() -> list[EventDocument]:
    began = NOW_MS - 2 * HOUR_MS
    return [
        EventDocument(time_ms=began, kind="started", text="started with local[4]", by=None),
        EventDocument(time_ms=began + HOUR_MS // 2, kind="deactivated", text="spouts emit nothing", by="ann"),
        EventDocument(time_ms=began + HOUR_MS // 2 + 60_000, kind="activated", text="spouts emit again", by="ann"),
        EventDocument(time_ms=began + HOUR_MS, kind="restarted", text="query failed: OSError: disk", by=None),
    ]


def now() -> NowDocument:
    return NowDocument(
        time_ms=NOW_MS,
        open_trees=7_666,
        retries=420,
        micro_batch={
            "micro_batch_id": 1_412,
            "elapsed_ms": 3_100.0,
            "doing": "micro-batch 1412 runs for 3 s: level 1 of 2, 21,000 executed so far",
        },
        hung=[],
        full=[],
        repeats=0,
        outages=[],
        trouble=None,
        waits_for=None,
        lag={"lines": {"lines-0": 1_000_000, "lines-1": 234_567}},
        lag_secs={},
        pending={"lines": 7_666},
        watermarks={},
        state={"rows": 88_000, "memory_bytes": 31 * MB},
        memory=[
            MemoryDocument(process="driver", host="bolt-1", pid=4711, bytes=210 * MB),
            MemoryDocument(process="jvm", host="bolt-1", pid=4720, bytes=1_400 * MB),
            MemoryDocument(process="worker", host="bolt-1", pid=4801, bytes=180 * MB),
        ],
        slowest={"root": ROOT, "latency_ms": 31_004.5, "time_ms": NOW_MS - 600_000},
    )


def document(of: TopologyEntry) -> TopologyDocument:
    windows = {name: window(name, min(secs, 7_200), secs // 600) for name, secs in WINDOWS_SECS.items()}
    windows[ALL_TIME] = window(ALL_TIME, 7_200.0, 17)
    return TopologyDocument(
        entry=of,
        live=TopologyState.of(of["state"]).runs,
        components=components(),
        settings={"message_timeout_secs": 30.0, "max_spout_pending": None, "log-level": "warning"},
        windows=windows,
        now=now(),
        errors=errors(),
        events=events(),
    )


def line(text: str, level: str = "WARNING", ago_ms: int = 0, **fields: Any) -> dict[str, Any]:
    found = {"component": None, "task": None, "micro_batch": None, "root": None, **fields}
    return {"time_ms": NOW_MS - ago_ms, "level": level, "topology": "words", **found, "text": text}


class FakeOperator(Views, StateQuestions):
    """Answers as ``operate.operator.Operator``; what it is asked to change is in ``asked``."""

    def __init__(self, home: str | None = None, *, open_files: Callable[[str], Files] | None = None) -> None:
        self.home = SimpleNamespace(place=home or HOME, trouble=None)
        self.known = entries()
        self.documents: dict[str, TopologyDocument] = {one["id"]: document(one) for one in self.known}
        self.asked: list[tuple[Any, ...]] = []
        self.answers: dict[str, Answer] = {}
        """By method: what it answers instead."""
        self.lines = [
            line("starts", "INFO", 9_000),
            line("enrich[1] reported: KeyError: 'language'", ago_ms=4_000, component="enrich", task=1,
                 micro_batch=1_411),
            line("[('the', 4)]", "PRINT", 2_000, component="count", task=0, micro_batch=1_411),
        ]  # fmt: skip
        self.tries = 0
        self.kept: KeptState = KeptInMemory.of_tasks({"be": 2, 7: [1]}, {"7": "text", ("be", 7): 3})

    @property
    def trouble(self) -> str | None:
        return self.home.trouble

    def topologies(self, *, ended: bool = True) -> list[TopologyEntry]:
        return [one for one in self.known if ended or TopologyState.of(one["state"]).runs]

    def find(self, topology: str) -> TopologyEntry:
        return chosen(self.topologies(), topology, self.home.place)

    def document(self, topology: str) -> TopologyDocument:
        return self.documents[self.find(topology)["id"]]

    def series(self, topology: str, since_ms: int | None = None, until_ms: int | None = None) -> SeriesDocument:
        self.find(topology)
        until = until_ms or NOW_MS
        since = since_ms or until - HOUR_MS
        step = 10 if until - since <= HOUR_MS else 300
        points = []
        for number, time_ms in enumerate(range(since, until, step * 1000)):
            gone = 100 < number < 106  # a restart
            points.append(_point(time_ms, 0.0 if gone else step, number))
        return SeriesDocument(step_secs=step, points=points, events=events())

    def micro_batches(self, topology: str, last: int = 100) -> list[dict[str, Any]]:
        self.find(topology)
        return [_micro_batch(number) for number in range(1_412 - last, 1_412)]

    def stories(
        self, topology: str, state: str = "failed", *, search: str = "", last: int = 100
    ) -> list[dict[str, Any]]:
        self.find(topology)
        return [_story(number, state) for number in range(3)][-last:] if search in _story(0, state)["why"] else []

    def story(self, topology: str, root: str) -> dict[str, Any] | None:
        self.find(topology)
        return {**_story(0, "failed"), "other_attempts": []} if root == ROOT else None

    def letter(self, topology: str, letter: str) -> dict[str, Any] | None:
        return next((one for one in self.letters(topology) if one["id"] == letter), None)

    def letters(
        self,
        topology: str,
        *,
        search: str = "",
        last: int = 100,
        replayed: bool = True,
        discarded: bool = True,
        **_: str | None,
    ) -> list[dict[str, Any]]:
        self.find(topology)
        letters = [_letter(number) for number in range(3)]
        return [one for one in letters if search in one["id"] and (replayed or not one["replayed"])][-last:]

    def _kept(
        self, topology: str, name: str, arguments: dict[str, Any], as_of: int | None, act: Callable[[KeptState], Any]
    ) -> Any:
        self.find(topology)
        return act(self.kept)

    def log(
        self, topology: str, *, component: str | None = None, search: str = "", last: int = 200
    ) -> list[dict[str, Any]]:
        self.find(topology)
        return [one for one in self.lines if component in (None, one["component"]) and search in one["text"]][-last:]

    def change(self, topology: str, verb: str, /, *, by: str, **arguments: Any) -> Answer:
        found = self.find(topology)
        self.asked.append((verb, found["id"], arguments, by))
        if verb in self.answers:
            return self.answers[verb]
        if not TopologyState.of(found["state"]).runs:
            return Answer(done=False, refused=True, text=f"topology {found['name']!r} does not run: {found['why']}")
        return Answer(done=True, refused=False, text=f"{verb} of {found['name']}")


def _point(time_ms: int, secs: float, number: int) -> SeriesPoint:
    busy = int(secs > 0)
    latency = _percentiles(1_900.0, 9_100.0, 15_250.0, 31_004.5) if busy else _percentiles(0, 0, 0, 0)
    complete: dict[str, float | None] = latency if busy else dict.fromkeys(latency)
    return SeriesPoint(
        time_ms=time_ms, secs=secs, emitted=12_000 * busy, executed=84_000 * busy, acked=11_900 * busy,
        failed=100 * busy, set_aside=busy * (number % 50 == 0), errors=100 * busy, micro_batches=2 * busy,
        micro_batch_ms=4_900.0 if busy else None, open_trees=7_666 * busy, lag=1_000_000 + 600 * number,
        complete=complete, capacity={"split": 0.01, "enrich": 0.97, "count": 0.01} if busy else {},
        components={"lines": {"emitted": 12_000.0 * busy, "lag": 1_000_000.0 + 600 * number}},
        memory={"driver": 210 * MB, "jvm": 1_400 * MB, "workers": 720 * MB} if busy else {},
    )  # fmt: skip


def _micro_batch(number: int) -> dict[str, Any]:
    ends = (("plan", 30), ("read", 500), ("level 1", 3_900), ("level 2", 4_300), ("acker", 4_400), ("stage", 4_500))
    parts, at = [], 0.0
    for name, end in (*ends, ("commit", 4_800), ("promotion", 4_900)):
        parts.append((name, at, float(end)))
        at = float(end)
    record = MicroBatchRecord(
        micro_batch_id=number, began_ms=NOW_MS - (1_412 - number) * 5_000, elapsed_ms=4_900.0, parts=parts,
        busy_ms={name: 4 * (end - start) for name, start, end in parts}, emitted=6_000, executed=42_000, acked=5_950,
        failed=50, repeats=0, rows=96, bytes=3 * MB, spark_ms={"addBatch": 4_700.0, "triggerExecution": 4_950.0},
    )  # fmt: skip
    return dict(encode(record))


def _story(number: int, state: str) -> dict[str, Any]:
    return {
        "root": ROOT if number == 0 else f"{number:016x}",
        "component": "lines",
        "task": 0,
        "state": state,
        "source": "lines-0",
        "position": 4_000 + number,
        "message_id": None,
        "attempt": 1 + number,
        "started_in": 1_410,
        "started_ms": NOW_MS - 9_000,
        "ended_in": 1_411 if state != "open" else None,
        "ended_ms": NOW_MS - 4_000 if state != "open" else None,
        "why": "by enrich[1] in micro-batch 1411: KeyError: 'language'" if state == "failed" else "",
        "cause": "exception" if state == "failed" else None,
        "outcome": "retry" if state == "failed" else None,
        "traceback": None,
        "hops": [],
    }


def _letter(number: int) -> dict[str, Any]:
    return {
        "id": f"2026010112{number:02d}-{number:08x}",
        "time_ms": NOW_MS - 60_000 * (3 - number),
        "spout": "lines",
        "task": 0,
        "source": "lines-0",
        "position": 4_000 + number,
        "values": {"key": f"k{number}", "value": "not a line"},
        "reason": "KeyError: 'language'",
        "attempts": [],
        "replayed": number == 0,
        "discarded": False,
    }
