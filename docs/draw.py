"""The pictures of the documentation, drawn by the code that they are about.

    python -m docs.draw            # makes docs/pictures/*.svg again; a test says when that is due

Rule 1: names, levels, fusion and ids come from the engine; only the places of things are chosen here.
Rule 2: the same code gives the same bytes.
Rule 3: a picture has a ground of its own, light or dark as the reader's system is, so it is legible on any page.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from docs.draw_windows import KINDS, draw_window
from sparkbolt import BasicBolt, Topology, TopologyBuilder
from sparkbolt.api.function_bolts import FunctionBolt
from sparkbolt.api.tree_life import TRANSITIONS, TreeState
from sparkbolt.driver import commits
from sparkbolt.driver import transaction as aborts
from sparkbolt.layout.lane import lay_out
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.windows.watermarks import WaterMarkEventGenerator
from sparkbolt.wire.frames import Frame, FrameKind, Moment, collect, kind_of
from sparkbolt.wire.plan import Piece
from sparkbolt.worker.routing import Row
from sparkbolt.worker.source_reader import run_piece
from sparkbolt.worker.stage import run_level

PICTURES = Path(__file__).parent / "pictures"

PALETTE = {
    "paper": ("#fbfaf6", "#151b23"),
    "rim": ("#d8d4c8", "#323c47"),
    "ink": ("#22303c", "#e6edf3"),
    "soft": ("#5d6b78", "#9aa7b4"),
    "line": ("#8a97a3", "#7d8b99"),
    "spout": ("#0b7a75", "#3fc1b7"),
    "bolt": ("#3b5bdb", "#8ea6ff"),
    "state": ("#a85d08", "#f0a94b"),
    "done": ("#22752f", "#57c26b"),
    "fail": ("#c92a2a", "#ff7b72"),
}
"""Each colour on light and on dark ground. Spelled out for each class: not everything that shows SVG has variables."""
TIMES = "\N{MULTIPLICATION SIGN}"
OWN = ("spout", "bolt", "state", "done", "fail", "line")


def _rules(dark: bool) -> str:
    colour = {name: pair[dark] for name, pair in PALETTE.items()}
    rules = [f".paper {{ fill: {colour['paper']}; stroke: {colour['rim']}; }}"]
    rules += [f".{name} {{ fill: {colour[name]}; }}" for name in ("ink", "soft")]
    rules.append(f".halo {{ stroke: {colour['paper']}; stroke-width: 5; paint-order: stroke; }}")
    for name in OWN:
        rules.append(f".box.{name}, .band.{name}, .arrow.{name} {{ stroke: {colour[name]}; }}")
        rules.append(f".box.{name}, .band.{name}, .word.{name}, .tip.{name} {{ fill: {colour[name]}; }}")
    return "\n".join(rules)


STYLE = f"""\
svg {{ font-family: ui-sans-serif, system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }}
.code {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; }}
{_rules(dark=False)}
@media (prefers-color-scheme: dark) {{
{_rules(dark=True)}
}}
.box {{ fill-opacity: .13; stroke-width: 1.5; }}
.band {{ fill-opacity: .05; stroke-opacity: .55; stroke-dasharray: 5 4; }}
.arrow {{ stroke-width: 1.7; }}
"""


class Picture:
    """An SVG that grows part by part."""

    def __init__(self, width: int, height: int, label: str) -> None:
        self.width, self.height, self.label = width, height, label
        self.parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        kind: str = "ink",
        size: float = 13,
        anchor: str = "middle",
        weight: int = 400,
    ) -> None:
        self.parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{escape(words)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, kind: str, *lines: str, round_: float = 10) -> None:
        """A box with a name in its middle, and smaller lines below the name."""
        self.rect(x, y, width, height, f"box {kind}", round_)
        first = y + height / 2 + 5 - 8.5 * (len(lines) - 1)
        for number, line in enumerate(lines):
            if number:
                self.text(x + width / 2, first + 17 * number, line, "soft", 11.5)
            else:
                self.text(x + width / 2, first, line, "ink", 14, weight=600)

    def rect(self, x: float, y: float, width: float, height: float, kind: str, round_: float = 12) -> None:
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_:g}"/>'
        )

    def arrow(self, *points: tuple[float, float], kind: str = "line") -> None:
        """A line through the points, with a tip at the last one; all its pieces are level or upright."""
        (x0, y0), (x1, y1) = points[-2:]
        dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
        path = " ".join(f"{x:g},{y:g}" for x, y in (*points[:-1], (x1 - 6 * dx, y1 - 6 * dy)))
        left, right = (x1 - 9 * dx - 4.5 * dy, y1 - 9 * dy - 4.5 * dx), (x1 - 9 * dx + 4.5 * dy, y1 - 9 * dy + 4.5 * dx)
        tip = " ".join(f"{x:g},{y:g}" for x, y in ((x1, y1), left, right))
        self.parts.append(
            f'<polyline class="arrow {kind}" fill="none" points="{path}"/><polygon class="tip {kind}" points="{tip}"/>'
        )

    def slant(self, start: tuple[float, float], end: tuple[float, float], kind: str = "line") -> None:
        """A straight line in any direction, with a tip at its end."""
        (x0, y0), (x1, y1) = start, end
        length = math.hypot(x1 - x0, y1 - y0)
        dx, dy = (x1 - x0) / length, (y1 - y0) / length
        left, right = (x1 - 9 * dx - 4.5 * dy, y1 - 9 * dy + 4.5 * dx), (x1 - 9 * dx + 4.5 * dy, y1 - 9 * dy - 4.5 * dx)
        tip = " ".join(f"{x:.1f},{y:.1f}" for x, y in ((x1, y1), left, right))
        self.parts.append(
            f'<line class="arrow {kind}" x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1 - 6 * dx:.1f}" y2="{y1 - 6 * dy:.1f}"/>'
            f'<polygon class="tip {kind}" points="{tip}"/>'
        )

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(self.label)}">'
        )
        paper = f'<rect class="paper" x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="14"/>'
        return "\n".join([head, f"<style>\n{STYLE}</style>", paper, *self.parts, "</svg>\n"])


class Count(BasicBolt):
    """Stands for the counting bolt of the README: it keeps something."""

    outputs = ["word", "count"]

    def prepare(self, context):
        self.counts = {}

    def execute(self, tup, collector):
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1
        collector.emit([word, self.counts[word]])


def _lines():
    yield ["to be"]


def _split(tup):
    for word in tup["line"].split():
        yield [word]


def word_count(fuse: bool) -> Topology:
    """The README's word count, over one line."""
    builder = TopologyBuilder("word-count")
    builder.set_spout("lines", GeneratorSpout(_lines, outputs=["line"], count=1), parallelism=2)
    split = FunctionBolt(_split, ["word"])
    builder.set_bolt("split", split, parallelism=2, fuse=fuse).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", ["word"])
    return builder.build()


# The lane.


def lane() -> str:
    """What runs where while one micro-batch rides the lane."""
    laid = lay_out(word_count(fuse=True), cores=2)
    topology = laid.topology
    picture = Picture(
        960, 452, "The lane: source, levels and acker on Spark's executors; coordinator and Ledger in the driver"
    )
    picture.text(28, 36, "The lane of a word count", size=17, anchor="start", weight=600)
    picture.text(932, 36, "one Structured Streaming query, one row = one frame of tuples", "soft", 12, "end")

    picture.rect(24, 56, 912, 186, "band line")
    picture.text(44, 80, "Spark executors", "soft", 12, "start")
    stages: list[tuple[str, str, list[tuple[str, str, str]]]] = [("source", "line", [])]
    for spec in topology.spouts:
        stages[0][2].append((f"{spec.id} {TIMES}{spec.parallelism}", "spout", "reads its ranges"))
    for bolt, producer in laid.fused_into.items():
        stages[0][2].append(
            (f"{bolt} {TIMES}{topology.components[bolt].parallelism}", "bolt", f"fused behind {producer}")
        )
    for level in laid.levels:
        kind = "state" if level.stateful else "line"
        bolts = [
            (f"{name} {TIMES}{topology.components[name].parallelism}", "bolt", "keeps state" if level.stateful else "")
            for name in level.components
        ]
        stages.append((f"level {level.number}", kind, bolts))
    stages.append(("acker", "line", [(f"acker {TIMES}{len(laid.acker_dests)}", "done", "XOR by root")]))

    x, places = 44.0, []
    for name, kind, boxes in stages:
        width = 24 + 136 * len(boxes)
        picture.rect(x, 94, width, 128, f"band {kind}")
        picture.text(x + 14, 114, name, "soft", 12, "start")
        for number, (title, box_kind, note) in enumerate(boxes):
            picture.box(x + 18 + 136 * number, 128, 116, 74, box_kind, title, note)
        for number in range(len(boxes) - 1):
            picture.arrow((x + 134 + 136 * number, 165), (x + 154 + 136 * number, 165))
        places.append((x, x + width))
        x += width + 110
    for (_, right), (left, _), words in zip(places[:-1], places[1:], ("frames", "ack partials"), strict=True):
        picture.arrow((right, 165), (left, 165))
        picture.text((right + left) / 2, 156, words, "soft", 12)
        if words == "frames":
            picture.text((right + left) / 2, 184, "shuffle", "soft", 11)

    picture.rect(24, 306, 912, 124, "band line")
    picture.text(44, 418, "driver process", "soft", 12, "start")
    picture.box(64, 320, 190, 58, "spout", "coordinator", "what is read next")
    picture.box(394, 320, 170, 58, "state", "ledger/n", "a log beside Spark's own")
    picture.box(706, 320, 190, 58, "done", "Ledger", "open trees, retries")
    acker = (places[-1][0] + places[-1][1]) / 2
    picture.arrow((159, 320), (159, 222), kind="spout")
    picture.text(170, 278, "plan n: ranges, never records", "word spout", 12, "start")
    picture.arrow((acker, 202), (acker, 320), kind="done")
    picture.text(acker - 10, 278, "ranges of complete trees, failures", "word done", 12, "end")
    picture.arrow((706, 340), (564, 340), kind="state")
    picture.text(635, 332, "stage n", "word state", 12)
    picture.arrow((800, 378), (800, 396), (159, 396), (159, 378), kind="done")
    picture.text(480, 416, "promote n, once Spark has committed it: ack, fail, progress", "word done", 12)
    return picture.svg()


# A tuple's tree.


@dataclass(frozen=True)
class Delivered:
    """One delivery of one tuple, as the engine made it."""

    task: int
    values: list[object]
    edge: int


def _frames(engine: LocalEngine, rows: list[Row]) -> list[tuple[int, Frame]]:
    task_at = engine.lane.task_at
    return [
        (task_at[dest], frame)
        for dest, data in rows
        if kind_of(data) == FrameKind.DATA
        for frame in collect([data]).in_order()
    ]


def _delivered(frames: list[tuple[int, Frame]]) -> list[Delivered]:
    found = []
    for task, frame in frames:
        assert frame.anchoring is not None
        for row in range(frame.rows):
            values = [column[row].as_py() if hasattr(column[row], "as_py") else column[row] for column in frame.columns]
            found.append(Delivered(task, values, int(frame.anchoring.edges[row])))
    return found


def _one_line() -> tuple[LocalEngine, Delivered, list[Delivered]]:
    """The line's delivery and its words', with the edges that the engine gave them."""
    engine = LocalEngine(word_count(fuse=False))
    plan = engine.perform_all(engine.coordinator.next_plan(0, 0.0))
    assert plan is not None
    moment = Moment(plan.micro_batch_id, plan.now_ms)
    rows = run_piece(engine.worker, moment, Piece(0, plan.entries[0])).to_rows(engine.lane)
    (line,) = _delivered(_frames(engine, rows))
    words = _delivered(_frames(engine, run_level(engine.worker, 1, rows, lambda _: None).to_rows(engine.lane)))
    return engine, line, sorted(words, key=lambda word: str(word.values[0]), reverse=True)


def short(number: int) -> str:
    """The first four hexadecimal digits of a 64-bit number; XOR goes digit by digit, so they can be checked."""
    return f"{number >> 48:04x}"


def tree() -> str:
    """One line, two words: which edges there are, what each task tells the acker, and that it adds up to zero."""
    engine, line, words = _one_line()
    owner = engine.topology.task_owner
    picture = Picture(960, 420, "The tree of one line of two words, and the XOR of everything that is said of it")
    picture.text(28, 36, "The tree of one line", size=17, anchor="start", weight=600)
    picture.text(932, 36, "first four digits of 64-bit edges", "soft", 12, "end")

    def name(task: int) -> str:
        component, index = owner(task)
        return f"{component}[{index}]"

    middle = 78 + 65 * (len(words) - 1)
    picture.box(40, middle, 130, 62, "spout", "lines[0]", f'"{" ".join(str(word.values[0]) for word in words)}"')
    picture.box(370, middle, 130, 62, "bolt", name(line.task), "emits two, acks")
    picture.arrow((170, middle + 31), (370, middle + 31))
    picture.text(270, middle + 22, short(line.edge), "ink code", 14)
    for number, word in enumerate(words):
        y = 78 + 130 * number
        picture.box(760, y, 150, 62, "bolt", name(word.task), f'"{word.values[0]}"; acks')
        picture.arrow((500, middle + 20 + 22 * number), (560, middle + 20 + 22 * number), (560, y + 31), (760, y + 31))
        picture.text(660, y + 22, short(word.edge), "ink code", 14)

    acked = line.edge
    for word in words:
        acked ^= word.edge
    said = [("lines[0]  init", "spout", line.edge, short(line.edge))]
    sum_ = " xor ".join(map(short, (line.edge, *(word.edge for word in words))))
    said.append((f"{name(line.task)}  ack", "bolt", acked, f"{sum_} = {short(acked)}"))
    said += [(f"{name(word.task)}  ack", "bolt", word.edge, short(word.edge)) for word in words]
    total = 0
    picture.rect(40, 286, 870, 112, "band done")
    for number, (who, kind, xor, words_) in enumerate(said):
        y = 308 + 18 * number
        picture.text(200, y, who, f"word {kind}", 13, "end", 600)
        picture.text(220, y, words_, "ink code", 13, "start")
        total ^= xor
    picture.text(200, 388, "all of it, XOR", "word done", 13, "end", 600)
    verdict = "every edge was said twice: the tree is complete" if total == 0 else "the tree is open"
    picture.text(220, 388, f"{short(total)}   {verdict}", "ink code", 13, "start")
    return picture.svg()


# The ledger's three steps.

STEPS = (
    (
        "stage",
        "state",
        "foreachBatch(n)",
        "the verdicts are written:",
        "ledger/n.entry",
        "replaces an earlier staging",
    ),
    ("commit", "bolt", "Spark", "state and n are durable:", "spark/commits/n", "n is never run again"),
    (
        "promote",
        "done",
        "the next plan",
        "verdicts are counted, once:",
        "ack, fail, progress",
        "only now a spout hears",
    ),
)
PROMISE = "Whatever dies, and whenever: no verdict is counted twice, and none before its work is durable."
CRASHES = (
    ("crash before the entry", "n runs again, from its plan;", "nothing was counted"),
    ("crash before the commit", "n runs again; the entry of the", "first attempt is replaced"),
    ("crash before the promotion", "start-up reads the log up to the", "last commit: n is counted then"),
)


def ledger() -> str:
    """Stage, commit, promote; and what a crash before each of them means."""
    picture = Picture(960, 360, "The ledger's three steps: stage, commit, promote; and what a crash between them means")
    picture.text(28, 36, "A verdict is counted once", size=17, anchor="start", weight=600)
    picture.text(932, 36, "micro-batch n", "soft", 12, "end")
    for number, (step, kind, who, what, file, note) in enumerate(STEPS):
        x = 76 + 292 * number
        picture.rect(x, 60, 232, 158, f"box {kind}", 12)
        picture.text(x + 18, 88, f"{number + 1}  {step}", "ink", 16, "start", 600)
        picture.text(x + 214, 88, who, "soft code", 11, "end")
        picture.text(x + 18, 118, what, "soft", 12, "start")
        picture.rect(x + 18, 132, 196, 34, "box line", 6)
        picture.text(x + 116, 154, file, "ink code", 13)
        picture.text(x + 18, 194, note, "soft", 12, "start")
        if number:
            picture.arrow((x - 60, 139), (x, 139))
        else:
            picture.arrow((28, 139), (x, 139))
    for number, (when, first, second) in enumerate(CRASHES):
        x = 46 + 292 * number
        picture.arrow((x, 252), (x, 150), kind="fail")
        picture.text(x - 18 if number == 0 else x - 60, 272, when, "word fail", 12.5, "start", 600)
        picture.text(x - 18 if number == 0 else x - 60, 292, first, "soft", 12, "start")
        picture.text(x - 18 if number == 0 else x - 60, 309, second, "soft", 12, "start")
    picture.text(
        28,
        342,
        PROMISE,
        "ink",
        12.5,
        "start",
    )
    return picture.svg()


# A micro-batch of a transactional topology.

EXECUTIONS = (
    ("n, first execution", "fail", (5, 6, 7, 8), (7,), f"nothing is staged; {aborts.FOLDER}/n: without 7"),
    ("n, second execution", "done", (5, 6, 8), (), f"ledger/n.entry and {commits.FOLDER}/n.sink are written"),
    ("n + 1", "spout", (7, 9, 10), (), "7 is there again: its second attempt"),
)
AFTERWARDS = (
    ("Spark commits n", "bolt", "state is durable"),
    ("commit(n, rows)", "state", "the sink writes, once"),
    ("promotion", "done", "the spout hears of 5, 6, 8"),
)
SAME_STATE = "Each execution of n begins with the state after n - 1; what an aborted one has left is never read."


def transaction() -> str:
    """An execution that is aborted, the one that counts, what follows it, and the next micro-batch."""
    picture = Picture(960, 400, "A micro-batch of a transactional topology: aborted, repeated, committed")
    picture.text(28, 36, "What fails leaves no trace", size=17, anchor="start", weight=600)
    picture.text(932, 36, "7 fails in the first execution", "soft", 12, "end")
    for number, (name, kind, messages, failed, note) in enumerate(EXECUTIONS):
        x = 28 + 308 * number
        picture.rect(x, 60, 288, 130, f"box {kind}", 12)
        picture.text(x + 18, 88, name, "ink", 15, "start", 600)
        for place, message in enumerate(messages):
            colour = "fail" if message in failed else "line"
            picture.rect(x + 18 + 52 * place, 104, 42, 34, f"box {colour}", 6)
            picture.text(x + 39 + 52 * place, 126, str(message), "ink code", 14)
        picture.text(x + 18, 170, note, "soft", 11.5, "start")
        if number == 1:
            picture.arrow((x - 20, 121), (x, 121))
    for number, (name, kind, note) in enumerate(AFTERWARDS):
        x = 336 + 200 * number
        picture.box(x, 252, 180, 70, kind, name, note)
        if number:
            picture.arrow((x - 20, 287), (x, 287))
    picture.arrow((426, 190), (426, 252), kind="done")
    picture.arrow((826, 252), (826, 190), kind="done")
    picture.text(28, 372, SAME_STATE, "ink", 12.5, "start")
    return picture.svg()


LIFE_PLACES = {
    TreeState.BEGUN: (200, 190, "spout"),
    TreeState.HELD: (520, 90, "state"),
    TreeState.OPEN: (420, 270, "state"),
    TreeState.ACKED: (540, 440, "done"),
    TreeState.VOID: (730, 440, "line"),
    TreeState.FAILING: (720, 180, "fail"),
    TreeState.TIMED_OUT: (900, 290, "fail"),
    TreeState.FAILED: (900, 90, "fail"),
    TreeState.RETRIED: (1170, 90, "spout"),
    TreeState.RETURNED: (1170, 190, "line"),
    TreeState.GIVEN_UP: (1170, 290, "line"),
}
"""Where the middle of each state's box is, and its colour."""
LIFE_BOX = 140, 44


def life() -> str:
    """The states of a tree, and the steps between them, of the table that the engine is held to."""
    picture = Picture(1270, 500, "The life of a tree: its states, and what takes it from one to the next")
    picture.text(28, 36, "The life of a tree", size=17, anchor="start", weight=600)
    picture.text(1242, 36, "each state as of the last promotion", "soft", 12, "end")
    words: list[tuple[float, float, str]] = []
    for step in TRANSITIONS:
        x, y, kind = LIFE_PLACES[step.after]
        if step.before is None:
            picture.arrow((28, y), (x - LIFE_BOX[0] / 2, y))
            words.append(((28 + x - LIFE_BOX[0] / 2) / 2, y - 10, step.why))
            continue
        tail, tip = (
            _edge_of_box(LIFE_PLACES[step.before], LIFE_PLACES[step.after]),
            _edge_of_box(LIFE_PLACES[step.after], LIFE_PLACES[step.before]),
        )
        share = 0.5
        if any((other.before, other.after) == (step.after, step.before) for other in TRANSITIONS):  # side by side
            side = 14 if tail[1] < tip[1] else -14
            tail, tip, share = (tail[0] + side, tail[1]), (tip[0] + side, tip[1]), 0.35
        elif abs(tip[0] - tail[0]) > 80 and abs(tip[1] - tail[1]) > 100:  # a long one crosses others in its middle
            share = 0.65 if step.after == TreeState.VOID else 0.3
        picture.slant(tail, tip, kind)
        words.append((tail[0] + (tip[0] - tail[0]) * share, tail[1] + (tip[1] - tail[1]) * share + 4, step.why))
    for x, y, why in words:
        picture.text(x, y, why, "soft halo", 11)
    for state, (x, y, kind) in LIFE_PLACES.items():
        picture.box(x - LIFE_BOX[0] / 2, y - LIFE_BOX[1] / 2, *LIFE_BOX, kind, state)
    return picture.svg()


def _edge_of_box(here: tuple[float, float, str], there: tuple[float, float, str]) -> tuple[float, float]:
    """Where the line from the middle of one box to that of another leaves the first."""
    x, y, _ = here
    dx, dy = there[0] - x, there[1] - y
    share = min(LIFE_BOX[0] / 2 / abs(dx) if dx else 1, LIFE_BOX[1] / 2 / abs(dy) if dy else 1)
    return x + dx * share, y + dy * share


HOURS_READ = {"a.json": 7, "b.json": 2}
"""How many of its eight hours each of two files has been read."""
HOUR_WIDTH = 45


def watermarks() -> str:
    """The watermark of a stream of two files: with one mark for the stream, and with one for each file."""
    picture = Picture(960, 262, "The watermark of two files: the newest timestamp of all, or that of the file behind")
    for left, by_source in ((40, False), (510, True)):
        marks = WaterMarkEventGenerator(["files"], lag_ms=1)
        marks.note("files", max(HOURS_READ.values()), now_ms=0)
        if by_source:
            marks.hold("files", min(HOURS_READ.values()))
        mark = marks.watermark(0) or 0
        title = "a watermark for each file, and the least of them" if by_source else "one watermark for all files"
        picture.text(left, 36, title, size=15, anchor="start", weight=600)
        for row, read in enumerate(HOURS_READ.values()):
            y = 82 + 62 * row
            for first, end, kind, word in (
                (0, read, "done", "read"),
                (read, max(read, mark), "fail", "will be late"),
                (max(read, mark), 8, "line", "to be read"),
            ):
                if end > first:
                    width = HOUR_WIDTH * (end - first)
                    picture.box(left + HOUR_WIDTH * first, y, width, 30, kind, "" if width < 80 else word, round_=4)
        x = left + HOUR_WIDTH * mark
        picture.arrow((x, 212), (x, 66), kind="state")
        for row, (name, read) in enumerate(HOURS_READ.items()):
            picture.text(
                left, 74 + 62 * row, f"{name}, of 0:00 to 8:00, is read up to {read}:00", "soft halo", 12, "start"
            )
        picture.text(x, 230, f"watermark {mark}:00 (lag 1 h)", "word state", 12.5, weight=600)
    return picture.svg()


DRAWINGS: dict[str, Callable[[], str]] = {
    "watermarks.svg": watermarks,
    "lane.svg": lane,
    "tree.svg": tree,
    "ledger.svg": ledger,
    "transaction.svg": transaction,
    "tree-life.svg": life,
} | {f"window-{kind}.svg": functools.partial(draw_window, kind) for kind in KINDS}


def main() -> None:
    """Write all pictures."""
    PICTURES.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (PICTURES / name).write_text(draw(), encoding="utf-8")
        print(PICTURES / name)


if __name__ == "__main__":
    main()
