"""An operator for tests of the UI: what ``FakeOperator`` knows, and what only some topologies have.

Its ids, texts and values are hostile: they are scripts, where a user or a message may choose them.
"""

from __future__ import annotations

import copy
import threading
from typing import Any

from sparkbolt.control.documents import ALL_TIME, Answer, TopologyDocument, TopologyEntry, TopologyState
from tests.unit.control.fake import NOW_MS, FakeOperator, document, entry

TOKEN = "0123456789abcdef-the-token"
NOW_SECS = NOW_MS / 1000
SCRIPT = "<script>alert('x')</script>"
HOSTILE = f"{SCRIPT}\"'&{{{{7*7}}}}"


class UiOperator(FakeOperator):
    """``words`` has buckets, a windowed bolt and open trees that are held; ``hostile`` is made of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        self.gate: threading.Event | None = None
        """If it is there, questions wait for it."""
        self.hangs: str | None = None
        """The only topology whose questions wait; None: all do."""
        self.raises: Exception | None = None
        hostile = entry(HOSTILE, TopologyState.ACTIVE, why=HOSTILE)
        self.known.append(hostile)
        self.documents[hostile["id"]] = _hostile(hostile)
        self._extend(self.documents[self.known[0]["id"]])
        for one in self.known:  # the same objects as in the documents
            one.setdefault("directory", one["checkpoint"])  # type: ignore[typeddict-item]

    def follow_a_file(self) -> None:
        """Have one more topology, whose lag is that of a file, in bytes."""
        files = copy.deepcopy(self.documents[self.known[0]["id"]])
        followed = files["entry"]["id"] = "files-1-1767262800"
        self.known.append({**self.known[0], "id": followed})
        self.documents[followed] = files
        files["components"][0]["position_unit"] = "bytes"
        files["now"].update(lag={"lines": {"/logs/a.log": 5_400_000}}, lag_secs={"lines": {"/logs/a.log": 95.2}})

    @staticmethod
    def _extend(words: TopologyDocument) -> None:
        for name in ("600", ALL_TIME):
            components = words["windows"][name]["components"]
            components["lines"]["complete_buckets"] = [[900.0, 10], [1100.0, 70], [31_250.0, 20]]
            components["enrich"]["execute_buckets"] = [[0.11, 4000], [900.0, 3]]
        words["now"]["watermarks"] = {
            "count": {"watermark_ms": NOW_MS - 5000, "behind_ms": 5000, "windows": 4, "late_tuples": 9}
        }

    def _called(self, what: str, topology: str) -> None:
        self.calls.append((what, topology))
        if self.gate is not None and self.hangs in (None, topology):
            self.gate.wait(600)
        if self.raises is not None:
            raise self.raises

    def topologies(self, *, ended: bool = True) -> list[TopologyEntry]:
        self.calls.append(("topologies", ""))
        return super().topologies(ended=ended)

    def find(self, topology: str) -> TopologyEntry:
        return next(one for one in self.known if topology in (one["id"], one["name"]))

    def document(self, topology: str) -> TopologyDocument:
        self._called("document", topology)
        return super().document(topology)

    def stories(
        self, topology: str, state: str = "failed", *, search: str = "", last: int = 100
    ) -> list[dict[str, Any]]:
        self._called("stories", topology)
        found = super().stories(topology, state, search=search, last=last)
        if state == "open":
            for number, story in enumerate(found):
                story["hops"] = [_hop("split", 0, held=0), _hop("count", number % 2, held=2)]
        for story in found:
            story["why"] += SCRIPT
        return found

    def letters(
        self,
        topology: str,
        *,
        search: str = "",
        last: int = 100,
        replayed: bool = True,
        discarded: bool = True,
        **filters: str | None,
    ) -> list[dict[str, Any]]:
        found = super().letters(topology, search=search, last=last, replayed=replayed, discarded=discarded, **filters)
        return [{**each, "values": {"value": SCRIPT}} for each in found]

    def change(self, topology: str, verb: str, /, *, by: str, **arguments: Any) -> Answer:
        self._called(verb, topology)
        return super().change(topology, verb, by=by, **arguments)


def _hop(component: str, task: int, *, held: int) -> dict[str, Any]:
    body = {"micro_batch_id": 1, "now_ms": NOW_MS, "component": component, "task": task, "tuples": 2}
    return {**body, "acked": 0, "failed": 0, "held": held, "source": "", "values": "", "emitted": {}}


def _hostile(of: TopologyEntry) -> TopologyDocument:
    found = document(of)
    found["components"][1]["id"] = SCRIPT
    for error in found["errors"]:
        error["text"] = error["traceback"] = HOSTILE
        error["component"] = SCRIPT
    found["settings"] = {HOSTILE: HOSTILE}
    return found
