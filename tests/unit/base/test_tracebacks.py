"""Tracebacks show the user's frames, and Sparkbolt's in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sparkbolt import BasicBolt, TopologyBuilder
from sparkbolt.api.pickling import Pickling
from sparkbolt.base.exceptions import preparing, text_of
from sparkbolt.base.tracebacks import fold, folded
from sparkbolt.errors import PrepareError
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver

FOLDED = "sparkbolt (SPARKBOLT_DEBUG=1 shows all)"


def driven(bolt: Any, words: tuple[str, ...] = ("be",)) -> TopologyTestDriver:
    builder = TopologyBuilder("words")
    builder.set_spout("words", GeneratorSpout(list, outputs=["word"]))
    builder.set_bolt("bolt", bolt).global_grouping("words")
    with TopologyTestDriver(builder.build()) as driver:
        for word in words:
            driver.feed("words", [word], message_id=word)
        driver.run_until_idle()
    return driver


def reported(bolt: Any) -> list[str]:
    """The lines of the traceback of a bolt's only error, without the marks under them."""
    [error] = driven(bolt).errors()
    assert error.traceback is not None
    return [line for line in error.traceback.splitlines() if line.strip(" ^~")]


class Raises(BasicBolt):
    outputs = ["word"]

    def execute(self, tup: Any, collector: Any) -> None:
        json.loads(tup["word"])


class Overfull(BasicBolt):
    outputs = ["word"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([1, 2])


def test_traceback_shows_calls_of_user_code_and_nothing_of_sparkbolt() -> None:
    lines = reported(Raises())
    assert not any("sparkbolt/" in line or "During handling" in line for line in lines)
    assert '        json.loads(tup["word"])'.strip() in [line.strip() for line in lines]
    assert any("json/decoder.py" in line for line in lines)
    assert lines[-1].startswith("json.decoder.JSONDecodeError: ")


def test_everything_is_shown_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKBOLT_DEBUG", "1")
    lines = reported(Overfull())
    assert any("sparkbolt/worker/" in line for line in lines)
    assert not any(FOLDED in line for line in lines)


def raised(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def names(error: BaseException) -> list[str]:
    found, trace = [], error.__traceback__
    while trace is not None:
        found.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return found


def test_a_defect_of_sparkbolt_keeps_its_frames() -> None:
    error = raised(lambda: Pickling.loads(None, b""))  # type: ignore[arg-type]
    while error.__traceback__ is not None and error.__traceback__.tb_frame.f_code.co_filename == __file__:
        error.__traceback__ = error.__traceback__.tb_next
    fold(error)
    assert [name.rpartition("/")[2] for name in names(error)] == ["pickling.py"]
    assert "pickling.py" in text_of(error)


def test_a_folded_call_raises_the_same_exception() -> None:
    with pytest.raises(PrepareError) as caught, preparing("prepare of 'b'"):
        raise ValueError("no")
    first = caught.value

    @folded
    def again() -> None:
        raise first

    assert raised(again) is first
    assert isinstance(first.__cause__, ValueError)
