"""The positions of inlets' sources in the Spark folder of a new generation, whatever dies meanwhile."""

from __future__ import annotations

import json
from typing import Any

from sparkbolt import Topology
from sparkbolt.api.keyed_state import refusal
from sparkbolt.driver.ledger.agreement import InletSources, logged_offset
from sparkbolt.driver.ledger.generations import Generations, SparkLog
from sparkbolt.driver.transition import transition
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.spark.inlet_moves import runs_without_inlets
from tests.unit.driver.test_inlet_transition import with_inlets


class Died(BaseException):
    """The driver has died."""


class MortalFiles(MemoryFiles):
    """Dies before one of its changes."""

    left = -1

    def _live(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise Died

    def write(self, name: str, data: bytes) -> None:
        self._live()
        super().write(name, data)

    def remove(self, name: str) -> None:
        self._live()
        super().remove(name)


class FakeCheckpoint:
    """As much of a checkpoint as the moves of inlets use."""

    def __init__(self, files: MemoryFiles, generations: Generations) -> None:
        self.files, self.generations = files, generations

    @property
    def generation(self) -> Any:
        return self.generations[-1]

    @property
    def log(self) -> SparkLog:
        return SparkLog(self.files, self.generations)

    def last_commit(self) -> int:
        return self.log.last_commit

    def change(self, after: Topology) -> None:
        inlets = InletSources.read(self.files, self.generations)
        started = transition(after, 2, self.generations, self.last_commit(), refusal, inlets=inlets)
        assert started.refusals == ()
        self.generations = started.generations

    def run(self, number: int, ends: dict[str, int], *, commit: bool = True) -> None:
        """Spark logs a micro-batch, with the ends of some inlets."""
        lines = [f'{{"{name}":{end}}}' for name, end in ends.items()]
        text = "\n".join(["v1", "{}", *lines, json.dumps({"micro_batch_id": number})])
        self.files.files[self.log.name("offsets", number)] = text.encode()
        if commit:
            self.files.files[self.log.name("commits", number)] = b"v1\n{}"

    def ready(self) -> bool:
        """Begin a life; one that dies is followed by another one."""
        return runs_without_inlets(self)  # type: ignore[arg-type]

    def ends(self, number: int) -> list[str]:
        return list(logged_offset(self.log.read("offsets", number) or b"").inlets)


def begun() -> FakeCheckpoint:
    one = FakeCheckpoint(MortalFiles(), transition(with_inlets("b", "c"), 2, (), -1, refusal).generations)
    one.run(0, {"b": 1, "c": 1})
    one.run(1, {"b": 5, "c": 2})
    one.run(2, {"b": 9, "c": 2}, commit=False)
    one.files.files |= {"spark/sources/0/7": b"files of b", "spark/sources/1/offsets/0": b"start of c"}
    return one


def moved(dies: int) -> tuple[FakeCheckpoint, bool]:
    """Move twice, with inlets in another order; the driver dies once before a change of a file, or never."""
    one, files = begun(), MortalFiles()
    files.files, one.files = one.files.files, files
    files.left, died = dies, False
    without = []

    def ready() -> None:
        nonlocal died
        try:
            without.append(one.ready())
        except Died:
            died = True
            without.append(one.ready())

    assert not one.ready(), "nothing moves"
    one.change(with_inlets("a", "b", tasks=3, a="c"))
    ready()
    one.run(2, {})
    one.run(3, {})  # before the life has ended
    one.run(4, {}, commit=False)
    one.change(with_inlets("a", "b", tasks=4))  # before anything has read the inlets again
    ready()
    one.run(4, {})
    ready()
    assert without == [True, True, False]
    return one, died


def test_sources_go_on_behind_their_ends_and_with_what_they_have_noted_wherever_a_driver_dies() -> None:
    died = True
    for dies in range(100):
        if not died:
            break
        one, died = moved(dies)
        assert one.ends(4) == one.ends(3) == one.ends(2) == ['{"c":2}', '{"b":5}']
        newest = one.generation.folder
        noted = {name: data for name, data in one.files.files.items() if name.startswith(f"{newest}/sources")}
        assert noted == {f"{newest}/sources/0/offsets/0": b"start of c", f"{newest}/sources/1/7": b"files of b"}
        assert f"{newest}/inlets" not in one.files.files
    assert not died
    assert dies > 8, "it has died at each step"


def test_an_inlet_that_is_new_begins_at_its_start() -> None:
    one = begun()
    one.change(with_inlets("a", "c", tasks=3))
    assert one.ready()
    one.run(2, {})
    assert not one.ready()
    assert one.ends(2) == ["-", '{"c":2}']
    assert not one.ready(), "and again"
