"""A fake operator of the shop's topologies: it answers what it is asked, and notes it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from sparkbolt.api.dead_letters import DeadLetter
from sparkbolt.base.file_access import Files
from sparkbolt.control.documents import (
    Answer,
    PeekedDocument,
    SeriesDocument,
    TopologyDocument,
    TopologyEntry,
    TopologyState,
)
from sparkbolt.control.home import chosen
from sparkbolt.control.kept_state import KeptState, StateQuestions
from sparkbolt.control.letters.selection import kinds_of
from sparkbolt.control.questions import Views
from tests.unit.control import shop
from tests.unit.control.shop import CLICKS, HOME, MINUTE, NASTY, NOW_MS, ORDERS
from tests.unit.kept import KeptInMemory

TOKEN = "0123456789abcdef-the-token"
NOW_SECS = NOW_MS / 1000
STATES = {"activate": "active", "deactivate": "inactive"}


class FakeOperator(Views, StateQuestions):
    """Answers as ``control.operator.Operator``; ``asked`` has the changes that it was asked for, and ``calls`` all."""

    def __init__(
        self,
        home: str | None = None,
        *,
        open_files: Callable[[str], Files] | None = None,
        trees: int = 120,
        letters: int = 23,
        is_hostile: bool = False,
    ) -> None:
        self.home = SimpleNamespace(place=home or HOME, trouble=None)
        self.documents = {one["id"]: shop.document(one) for one in shop.entries()}
        if is_hostile:
            found = shop.hostile()
            self.documents[found["entry"]["id"]] = found
        self.known = [one["entry"] for one in self.documents.values()]
        self.trees, self.letters_count = trees, letters
        self.lines = shop.log_lines()
        self.asked: list[tuple[Any, ...]] = []
        self.calls: list[tuple[str, str]] = []
        self.answers: dict[str, Answer] = {}
        """By verb: its answer instead of the usual one."""
        self.settled: set[str] = set()
        """The letters that were given back or discarded."""
        self.gate: threading.Event | None = None
        """If it is there, documents, trees and changes wait for it."""
        self.hangs: str | None = None
        """The only topology for which they wait; None: all."""
        self.raises: Exception | None = None
        self.peeked: list[PeekedDocument] = []
        self.live_asked: list[tuple[str, dict[str, Any]]] = []
        self.live_error: Exception | None = None
        self.kept: KeptState = KeptInMemory.of_tasks(
            {"12:19": "x" * 300, NASTY: NASTY, "be": 2, 7: [1]},
            {("a", 7): None, "7": "text", ("be", 7): 3},
            bolt="revenue",
            other="enrich",
        )

    @property
    def trouble(self) -> str | None:
        found: str | None = self.home.trouble
        return found

    def _called(self, what: str, topology: str) -> None:
        self.calls.append((what, topology))
        if self.gate is not None and self.hangs in (None, topology):
            self.gate.wait(600)
        if self.raises is not None:
            raise self.raises

    def follow_a_file(self) -> None:
        """Have one more topology, whose lag is that of a file, in bytes."""
        files = copy.deepcopy(self.documents[ORDERS])
        files["entry"]["id"] = "files-1-1767262800"
        self.known.append(files["entry"])
        self.documents[files["entry"]["id"]] = files
        files["components"][0]["position_unit"] = "bytes"
        files["now"]["lag"] = {"orders": {"/logs/a.log": 5_400_000}}
        files["now"]["lag_secs"] = {"orders": {"/logs/a.log": 95.2}}

    def topologies(self, *, ended: bool = True) -> list[TopologyEntry]:
        self.calls.append(("topologies", ""))
        return [one for one in self.known if ended or TopologyState.of(one["state"]).runs]

    def find(self, topology: str) -> TopologyEntry:
        return chosen(self.known, topology, self.home.place)

    def document(self, topology: str) -> TopologyDocument:
        self._called("document", topology)
        return self.documents[self.find(topology)["id"]]

    def series(self, topology: str, since_ms: int | None = None, until_ms: int | None = None) -> SeriesDocument:
        since = since_ms or NOW_MS - 60 * MINUTE
        step = next(step for step in (10, 300, 3600) if (NOW_MS - since) / step / 1000 <= 2000)
        is_busy = self.find(topology)["id"] in (ORDERS, CLICKS)
        points = [shop.point(time_ms, step) for time_ms in range(since, NOW_MS, step * 1000) if is_busy]
        return SeriesDocument(step_secs=step, points=points, events=shop.events())

    def micro_batches(self, topology: str, last: int = 100) -> list[dict[str, Any]]:
        return [shop.micro_batch(number) for number in range(8_112 - last, 8_112) if self._is_orders(topology)]

    def _is_orders(self, topology: str) -> bool:
        return self.find(topology)["id"] == ORDERS

    def stories(
        self, topology: str, state: str = "failed", *, search: str = "", last: int = 100
    ) -> list[dict[str, Any]]:
        self._called("stories", topology)
        found = [shop.story(number, state) for number in range(self.trees) if self._is_orders(topology)][::-1]
        words = "{source}@{position} {root} {why}"
        return [one for one in found if search in words.format(**one)][-last:]

    def story(self, topology: str, root: str) -> dict[str, Any] | None:
        for state in ("failed", "open", "acked"):
            for one in self.stories(topology, state, last=10_000):
                if one["root"] == root:
                    others = [{"root": "0" * 15 + "1", "attempt": 1, "state": "failed"}]
                    return {**one, "other_attempts": others}
        return None

    def letter(self, topology: str, letter: str) -> dict[str, Any] | None:
        return next((one for one in self.letters(topology, last=10_000) if one["id"] == letter), None)

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
        found = [shop.letter(number) for number in range(self.letters_count) if self._is_orders(topology)]
        for one in found:
            one["replayed"] = one["replayed"] or one["id"] in self.settled
        found = [one for one in found if (replayed or not one["replayed"]) and (discarded or not one["discarded"])]
        found = [one for one in found if filters.get("cause") in (None, one["attempts"][-1]["cause"])]
        return [one for one in found if search in str(one)][-last:]

    def letter_kinds(self, topology: str, **_: Any) -> list[dict[str, Any]]:
        waiting = self.letters(topology, last=10_000, replayed=False, discarded=False)
        bare = [{name: one[name] for name in one if name not in ("replayed", "discarded")} for one in waiting]
        return [kind.to_json() for kind in kinds_of(map(DeadLetter.from_json, bare))]

    def _kept(
        self, topology: str, name: str, arguments: dict[str, Any], as_of: int | None, act: Callable[[KeptState], Any]
    ) -> Any:
        self.find(topology)
        return act(self.kept)

    def live(self, topology: str, question: str, arguments: dict[str, Any]) -> Any:
        self.find(topology)
        self.live_asked.append((question, arguments))
        if self.live_error is not None:
            raise self.live_error
        return [one for one in self.peeked if one["serial"] > arguments["after"]]

    def log(
        self, topology: str, *, component: str | None = None, search: str = "", last: int = 200
    ) -> list[dict[str, Any]]:
        lines = self.lines if self._is_orders(topology) else []
        return [one for one in lines if component in (None, one["component"]) and search in one["text"]][-last:]

    def change(self, topology: str, verb: str, /, *, by: str, **arguments: Any) -> Answer:
        self._called(verb, topology)
        found = self.find(topology)
        self.asked.append((verb, found["id"], arguments, by))
        if verb in self.answers:
            return self.answers[verb]
        if not TopologyState.of(found["state"]).runs:
            return Answer(done=False, refused=True, text=f"topology {found['name']!r} does not run: {found['why']}")
        found["state"] = STATES.get(verb, found["state"])
        self.settled |= set(arguments.get("ids") or ())
        return Answer(done=True, refused=False, text=f"{verb} of {found['name']}")
