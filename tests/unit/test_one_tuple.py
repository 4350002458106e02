"""The way of one tuple, from its spout to its ack, is as short as the page on the architecture says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sparkbolt
from sparkbolt import TopologyBuilder
from sparkbolt.base.ids import mix64, tree_key
from sparkbolt.base.native import FAST_ENV, kernels
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout
from tests.unit.test_exports import CountNothing

ROOT = Path(sparkbolt.__path__[0])
PAGE = ROOT.parent / "docs/architecture.md"
FILES_MAX = 16
MARK = "the-one-tuple"
DEPTH = 5
ROOMS = tuple(f"{ROOT}/{room}/" for room in ("wire", "worker", "driver"))
UNCOUNTED = ("base/", "api/")
"""Arithmetic that a file calls and gets back, and the values that users declare and are told."""


def one_line() -> Iterator[list[str]]:
    yield [f"{MARK} and another"]


class Split(sparkbolt.BasicBolt):
    outputs = ["word"]

    def execute(self, tup: sparkbolt.Tuple, collector: sparkbolt.types.BasicCollector) -> None:
        for word in tup["line"].split():
            collector.emit([word])


class Way:
    """The files of ``ROOMS`` whose functions get a tuple or return it, in the order of their first call.

    It is known by its values, by the key of its tree and by its root.
    """

    def __init__(self, ids: set[int]) -> None:
        self.ids = ids
        self.files: dict[str, str] = {}
        """File to the first function."""
        self._looking = False

    def look(self, frame: FrameType, event: str, returned: Any) -> None:
        path = frame.f_code.co_filename
        if self._looking or not path.startswith(ROOMS) or event not in ("call", "return"):
            return
        name = path.removeprefix(f"{ROOT}/")
        if name.startswith(UNCOUNTED) or name in self.files:
            return
        values = (
            [value for name_, value in frame.f_locals.items() if name_ != "self"] if event == "call" else [returned]
        )
        self._looking = True
        try:
            if any(self.carries(value, DEPTH, set()) for value in values):
                self.files[name] = frame.f_code.co_name
        finally:
            self._looking = False

    def carries(self, value: Any, depth: int, seen: set[int]) -> bool:
        """Whether a value is the tuple, or has it inside."""
        if value is None or isinstance(value, bool | float | type):
            return False
        if isinstance(value, int):
            return value in self.ids
        if isinstance(value, str):
            return MARK in value
        if isinstance(value, bytes | bytearray | memoryview):
            return MARK.encode() in bytes(value)
        if isinstance(value, np.ndarray):
            return any(self.carries(item, 1, seen) for item in value.ravel().tolist())
        if isinstance(value, pa.Array):
            return any(self.carries(item, 1, seen) for item in value.to_pylist())
        if isinstance(value, pa.Buffer):
            return MARK.encode() in value.to_pybytes()
        if depth == 0 or id(value) in seen:
            return False
        seen.add(id(value))
        return any(self.carries(item, depth - 1, seen) for item in inside(value))


def inside(value: Any) -> list[Any]:
    """What is in a container, or in a value of the engine's."""
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if not type(value).__module__.startswith("sparkbolt."):
        return []
    slots = [slot for cls in type(value).__mro__ for slot in getattr(cls, "__slots__", ()) if slot != "__dict__"]
    return [*getattr(value, "__dict__", {}).values(), *(getattr(value, slot, None) for slot in slots)]


def named_on_the_page() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    part = text.split("<!-- the way of one tuple -->")[1].split("<!-- its end -->")[0]
    return re.findall(r"^\| \d+ \| `sparkbolt/([\w/]+\.py)`", part, re.MULTILINE)


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No compiled kernels: what they do cannot be followed."""
    monkeypatch.setenv(FAST_ENV, "off")
    kernels.cache_clear()
    yield
    kernels.cache_clear()


@pytest.mark.usefixtures("in_python")
def test_one_tuple_goes_through_the_files_that_the_page_names_in_their_order() -> None:
    builder = TopologyBuilder("one")
    builder.set_spout("lines", GeneratorSpout(one_line, outputs=["line"], count=1))
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", CountNothing(), parallelism=2).fields_grouping("split", ["word"])
    topology = builder.build()
    key = tree_key(topology.tasks("lines")[0], 0)
    way, engine = Way({key, mix64(key)}), LocalEngine(topology)
    before = sys.getprofile()
    sys.setprofile(way.look)
    try:
        while engine.step() is not None:
            pass
    finally:
        sys.setprofile(before)
    assert engine.ledger.metrics.of("lines").acked == 1
    engine.close()
    assert list(way.files) == named_on_the_page(), way.files
    assert len(way.files) <= FILES_MAX
