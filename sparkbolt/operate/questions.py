"""Questions: what can be asked about topologies, one row each.

REST with its schema, the control socket and the running topology follow from a row. A question is a method of
``Operator`` with its name, unless the row has a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkbolt.core.driver.history import MicroBatchRecord
from sparkbolt.operate.documents import (
    Holder,
    OpenTrees,
    SeriesDocument,
    SettingsDocument,
    StoryDocument,
    TopologyDocument,
    TopologyEntry,
    WatermarkDocument,
)
from sparkbolt.operate.letters.of_topology import ListedLetter
from sparkbolt.operate.logs import LogLine
from sparkbolt.operate.parameters import Parameter, Row

if TYPE_CHECKING:
    from sparkbolt.operate.operator import Operator

LAST_MAX = 10_000


@dataclass(frozen=True)
class Question(Row):
    """A row: a question about a topology."""

    answer: Any = None
    """The type of the answer."""
    path: str = ""
    """Its route below ``/topologies``; a parameter in braces is a part of it."""
    ask: Callable[..., Any] | None = None
    """Gets the operator, the topology and the arguments."""
    absent: str = ""
    """The sentence if the answer is None."""
    is_live: bool = False
    """Whether the topology answers it while it runs, with a method of ``Steering``."""

    def put_to(self, operator: Operator, topology: str, arguments: Mapping[str, Any]) -> Any:
        """Ask the operator."""
        if self.ask is not None:
            return self.ask(operator, topology, **arguments)
        return getattr(operator, self.name)(topology, **arguments)


def lag(operator: Operator, topology: str) -> dict[str, dict[str, int]]:
    """The lag by spout and source."""
    return operator.document(topology)["now"]["lag"]


def windows(operator: Operator, topology: str) -> list[WatermarkDocument]:
    """The windowed bolts with their watermarks."""
    return [
        WatermarkDocument(
            component=component,
            watermark_ms=marks.get("watermark_ms"),
            behind_ms=marks.get("behind_ms"),
            windows=marks.get("windows"),
            late_tuples=marks.get("late_tuples"),
        )
        for component, marks in operator.document(topology)["now"]["watermarks"].items()
    ]


def settings(operator: Operator, topology: str) -> SettingsDocument:
    """The settings of a topology and of its components."""
    document = operator.document(topology)
    own = {one["id"]: one["settings"] for one in document["components"]}
    return SettingsDocument(settings=document["settings"], components=own)


def open_trees(operator: Operator, topology: str, last: int) -> OpenTrees:
    """The open trees by the tasks that hold them."""
    stories = operator.stories(topology, "open", last=last)
    return OpenTrees(open_trees=operator.document(topology)["now"]["open_trees"], holders=by_holder(stories))


def by_holder(stories: Iterable[Mapping[str, Any]]) -> list[Holder]:
    """Open trees by the tasks that hold their tuples, those with most trees first. A tree may be held by several."""
    holders: dict[str, Holder] = {}
    for story in stories:
        held: dict[str, int] = {}
        for hop in story["hops"]:
            if hop["held"]:
                held[f"{hop['component']}[{hop['task']}]"] = hop["held"]
        for name, tuples in (held or {"": 0}).items():
            holder = holders.setdefault(name, Holder(holder=name, trees=0, tuples=0, oldest_ms=None, stories=[]))
            holder["trees"] += 1
            holder["tuples"] += tuples
            started = [each for each in (holder["oldest_ms"], story["started_ms"]) if each is not None]
            holder["oldest_ms"] = min(started, default=None)
            holder["stories"].append(story)  # type: ignore[arg-type]
    return sorted(holders.values(), key=lambda each: (-each["trees"], each["holder"]))


# The table.


def _last(default: int) -> Parameter:
    about = "the maximum number of entries; the newest are returned"
    return Parameter("last", int, about, default, lowest=1, highest=LAST_MAX)


_SEARCH = Parameter("search", str, "return only entries that contain this text", "")
TOPOLOGIES = Question(
    "topologies",
    "List the topologies.",
    (Parameter("ended", bool, "include topologies that have ended", True),),
    answer=list[TopologyEntry],
)
QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in (
        Question(
            "document",
            "Get one topology with its components, numbers, errors and events.",
            answer=TopologyDocument,
            path="/{topology}",
            is_live=True,
        ),
        Question(
            "series",
            "Get the history of the topology's numbers.",
            (
                Parameter("since_ms", int | None, "the start of the range (default: one hour ago)", None, lowest=0),
                Parameter("until_ms", int | None, "the end of the range (default: now)", None, lowest=0),
            ),
            answer=SeriesDocument,
            path="/{topology}/series",
            is_live=True,
        ),
        Question(
            "micro_batches",
            "List the newest micro-batches with the time of each phase; the newest last.",
            (_last(100),),
            answer=list[MicroBatchRecord],
            path="/{topology}/micro-batches",
            is_live=True,
        ),
        Question(
            "stories",
            "List trees: failed, open, or traced and acked. An exact root or SOURCE@POSITION matches in any state.",
            (
                Parameter("state", str, "the state of the trees", "failed", choices=("failed", "open", "acked")),
                _SEARCH,
                _last(100),
            ),
            answer=list[StoryDocument],
            path="/{topology}/stories",
        ),
        Question(
            "story",
            "Get one tree with the other attempts of its message.",
            (Parameter("root", str, "the root of the tree"),),
            answer=StoryDocument,
            path="/{topology}/stories/{root}",
            absent="there is no tree {root!r}; trees are removed once they are acked, unless they are traced",
        ),
        Question(
            "open_trees",
            "List the open trees by the tasks that hold them.",
            (_last(500),),
            answer=OpenTrees,
            path="/{topology}/open-trees",
            ask=open_trees,
        ),
        Question(
            "letters",
            "List the dead letters; the newest last.",
            (
                _SEARCH,
                _last(100),
                Parameter("replayed", bool, "include letters that were replayed", True),
                Parameter("discarded", bool, "include letters that were discarded", True),
            ),
            answer=list[ListedLetter],
            path="/{topology}/letters",
        ),
        Question(
            "letter",
            "Get one dead letter.",
            (Parameter("letter", str, "the id of the letter, or its beginning"),),
            answer=ListedLetter,
            path="/{topology}/letters/{letter}",
            absent="there is no dead letter {letter!r}; GET .../letters lists them",
        ),
        Question(
            "windows",
            "List the windowed bolts with their watermarks.",
            answer=list[WatermarkDocument],
            path="/{topology}/windows",
            ask=windows,
        ),
        Question(
            "lag",
            "Get the lag by spout and source: the number of positions that are not finished.",
            answer=dict[str, dict[str, int]],
            path="/{topology}/lag",
            ask=lag,
        ),
        Question(
            "log",
            "Get the newest lines of the log; the newest last.",
            (Parameter("component", str | None, "return only lines of this component", None), _SEARCH, _last(200)),
            answer=list[LogLine],
            path="/{topology}/log",
        ),
        Question(
            "settings",
            "Get the settings of the topology and its components.",
            answer=SettingsDocument,
            path="/{topology}/settings",
            ask=settings,
        ),
    )
}
"""By name."""
