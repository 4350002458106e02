"""Questions: what you can ask about topologies, one method of ``Operator`` each.

The decorator adds a row to ``QUESTIONS``, from which REST and its schema follow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from sparkbolt.control.documents import (
    Holder,
    MetricDocument,
    OpenTrees,
    PeekedDocument,
    SettingsDocument,
    TopologyDocument,
    WatermarkDocument,
)
from sparkbolt.control.parameters import Parameter, Row, hints_of

LAST_MAX = 10_000
F = TypeVar("F", bound=Callable[..., Any])
Last = Annotated[int, Parameter("the maximum number of entries; the newest are returned", lowest=1, highest=LAST_MAX)]
Search = Annotated[str, Parameter("return only entries that contain this text")]
Serial = Annotated[int, Parameter("only entries after the one with this serial number", lowest=0)]
TimeMs = Annotated[int | None, Parameter(lowest=0)]


@dataclass(frozen=True)
class TopologyQuestion(Row):
    """A question about a topology, or about all of them."""

    CONTEXT = ("self", "topology")
    path: str = ""
    """Its route below ``/topologies``; a parameter in braces is a part of it."""
    answer: Any = None
    """The type of the answer."""
    absent: str = ""
    """The sentence if the answer is None."""
    wait_secs: float | None = None
    """How long a request waits for an answer that may take longer than others."""


QUESTIONS: dict[str, TopologyQuestion] = {}
"""By name."""


def question(path: str, **row: Any) -> Callable[[F], F]:
    """Add a row with the fields of ``TopologyQuestion`` for a method."""

    def add(method: F) -> F:
        one = TopologyQuestion.of(method, path=path, **{"answer": hints_of(method)["return"], **row})
        QUESTIONS[one.name] = one
        return method

    return add


class Views(ABC):
    """Questions that are answered by parts of the answers to others."""

    @abstractmethod
    def document(self, topology: str) -> TopologyDocument:
        """One topology."""

    @abstractmethod
    def stories(self, topology: str, state: str = "failed", *, search: str = "", last: int = 100) -> list[Any]:
        """Trees."""

    @abstractmethod
    def live(self, topology: str, question: str, arguments: dict[str, Any]) -> Any:
        """The answer of a running topology.

        Raises:
            WrongUseError: it does not run, or does not answer, or what the question names does not exist.
        """

    @question("/{topology}/peek/{component}")
    def peek(
        self,
        topology: str,
        component: str,
        *,
        stream: str | None = None,
        match: str = "",
        after: Serial = 0,
        last: Last = 100,
    ) -> list[PeekedDocument]:
        """Get the newest tuples that a component emits; ask again within 10 seconds to see those that follow.

        The first request makes the tasks show some of their tuples, so it returns none. A component without output
        streams shows the tuples that it gets. Values are shortened.

        Args:
            topology: the topology, which must run.
            component: the component.
            stream: only tuples of this stream.
            match: only tuples with this text in one of their values.
            after: only tuples after the one with this serial number.
            last: the maximum number of tuples.
        """
        arguments = {"component": component, "stream": stream, "match": match, "after": after, "last": last}
        answer: list[PeekedDocument] = self.live(topology, "peek", arguments)
        return answer

    @question("/{topology}/lag")
    def lag(self, topology: str) -> dict[str, dict[str, int]]:
        """Get the lag by spout and source: the number of positions that are not finished."""
        return self.document(topology)["now"]["lag"]

    @question("/{topology}/lag-secs")
    def lag_secs(self, topology: str) -> dict[str, dict[str, float]]:
        """Get how long ago the oldest unfinished record was written, in seconds, by spout and source; where known."""
        return self.document(topology)["now"]["lag_secs"]

    @question("/{topology}/metrics")
    def user_metrics(self, topology: str) -> dict[str, list[MetricDocument]]:
        """Get the metrics that components have declared with ``context.metrics``, by component."""
        return self.document(topology)["metrics"]

    @question("/{topology}/windows")
    def windows(self, topology: str) -> list[WatermarkDocument]:
        """List the windowed bolts with their watermarks."""
        empty = WatermarkDocument(component="", watermark_ms=None, behind_ms=None, windows=None, late_tuples=None)
        marks = self.document(topology)["now"]["watermarks"]
        return [{**empty, **own, "component": component} for component, own in marks.items()]  # type: ignore[typeddict-item]

    @question("/{topology}/settings")
    def settings(self, topology: str) -> SettingsDocument:
        """Get the settings of the topology and its components."""
        document = self.document(topology)
        own = {one["id"]: one["settings"] for one in document["components"]}
        return SettingsDocument(settings=document["settings"], components=own)

    @question("/{topology}/open-trees")
    def open_trees(self, topology: str, last: Last = 500) -> OpenTrees:
        """List the open trees by the tasks that hold them.

        Args:
            topology: the topology.
            last: the maximum number of trees.
        """
        stories = self.stories(topology, "open", last=last)
        return OpenTrees(open_trees=self.document(topology)["now"]["open_trees"], holders=by_holder(stories))


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
