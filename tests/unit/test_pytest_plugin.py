"""The pytest plugin: its fixture closes drivers, and failed assertions tell what happened to the messages."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest

from sparkbolt import BasicBolt, Bolt, TopologyBuilder
from sparkbolt.pytest_plugin import TopologyDriver
from sparkbolt.spouts import TextSpout

pytest_plugins = ["pytester"]

TOPOLOGY = """
import pytest
from sparkbolt import Bolt, TopologyBuilder
from sparkbolt.spouts import TextSpout

class Count(Bolt):
    outputs = ["word"]

    def execute(self, tup, collector):
        if tup.line == "bad":
            raise ValueError("no number")
        if tup.line != "hold":
            collector.emit([tup.line], anchors=tup)
            collector.ack(tup)

@pytest.fixture
def driver(topology_driver):
    builder = TopologyBuilder("counting")
    builder.set_spout("lines", TextSpout("books/*.txt"))
    builder.set_bolt("count", Count()).shuffle_grouping("lines")
    return topology_driver(builder)

def feed(driver, *lines):
    for number, line in enumerate(lines, 1):
        driver.feed("lines", {"line": line}, message_id=number)
    driver.run_until_idle()
"""


def report(pytester: pytest.Pytester, test: str, *options: str) -> str:
    """What pytest prints of a test that fails."""
    pytester.makepyfile(TOPOLOGY + test)
    result = pytester.runpytest_inprocess("-p", "sparkbolt.pytest_plugin", "-p", "no:cacheprovider", *options)
    result.assert_outcomes(failed=1)
    return "\n".join(line.removeprefix("E").strip() for line in result.outlines)


def test_a_failed_comparison_of_acks_names_the_bolt_that_failed_the_message(pytester: pytest.Pytester) -> None:
    printed = report(
        pytester,
        """
def test_it(driver):
    feed(driver, "bad")
    assert driver.acked("lines") == [1]
""",
    )
    assert "message 1 failed in bolt 'count' attempt 1: ValueError: no number\n" in printed
    assert "in execute\nspout 'lines': 0 acked, 1 failed, 0 not finished\n" in printed
    assert "Right contains one more item: 1" in printed, "and pytest's own words"


def test_a_failed_comparison_of_emitted_tuples_tells_of_all_spouts(pytester: pytest.Pytester) -> None:
    printed = report(
        pytester,
        """
def test_it(driver):
    feed(driver, "to", "hold")
    driver.feed("lines", {"line": "be"}, message_id="later")
    assert [["to"], ["be"]] == driver.emitted("count")
""",
    )
    assert "message 2 is not finished: held by count[0] since micro-batch 0; open for 0.0 s" in printed
    assert "message 'later' is not finished: it is not emitted yet: call run_until_idle()" in printed
    assert "spout 'lines': 1 acked, 0 failed, 2 not finished" in printed


def test_a_failed_membership_test_tells_too(pytester: pytest.Pytester) -> None:
    printed = report(
        pytester,
        """
def test_it(driver):
    feed(driver, "bad")
    assert 1 in driver.acked("lines")
""",
    )
    assert "assert 1 in []\nmessage 1 failed" in printed


def test_an_untracked_tuple_shows_as_an_error_of_its_bolt(pytester: pytest.Pytester) -> None:
    printed = report(
        pytester,
        """
def test_it(driver):
    driver.feed("lines", {"line": "bad"})
    driver.run_until_idle()
    assert driver.emitted("count") == [["bad"]]
""",
    )
    assert "'count' reported: ValueError: no number" in printed


@pytest.mark.parametrize(("options", "shown"), [((), 10), (("-vv",), 15)])
def test_a_long_account_is_cut(pytester: pytest.Pytester, options: tuple[str, ...], shown: int) -> None:
    printed = report(
        pytester,
        """
def test_it(driver, monkeypatch):
    monkeypatch.setenv("CI", "true")  # so that pytest itself cuts nothing
    feed(driver, *["bad"] * 15)
    assert driver.acked("lines") == [1]
""",
        *options,
    )
    assert printed.partition("short test summary")[0].count("\nmessage ") == shown
    assert ("... 10 more lines (-vv shows them)" in printed) == (not options)
    assert "spout 'lines': 0 acked, 15 failed, 0 not finished" in printed


class Cleaned(BasicBolt):
    outputs = ["line"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup.line])

    def cleanup(self) -> None:
        CLEANED.append("bolt")


CLEANED: list[str] = []


@pytest.fixture
def cleaned() -> Any:
    """Set up before the drivers of a test, and so finished after them."""
    CLEANED.clear()
    yield CLEANED
    assert CLEANED == ["bolt"] * 2


def test_the_fixture_closes_all_drivers_at_the_end_of_the_test(cleaned: Any, topology_driver: TopologyDriver) -> None:
    for seed in range(2):
        builder = TopologyBuilder("cleaning")
        builder.set_spout("lines", TextSpout("books/*.txt"))
        builder.set_bolt("clean", Cleaned()).shuffle_grouping("lines")
        driver = topology_driver(builder, seed=seed)
        driver.feed("lines", {"line": "to be"})
        driver.run_until_idle()
    assert cleaned == []


def test_a_copy_of_a_result_is_a_plain_list(topology_driver: TopologyDriver) -> None:
    class Ignore(Bolt):
        def execute(self, tup: Any, collector: Any) -> None:
            collector.ack(tup)

    builder = TopologyBuilder("copies")
    builder.set_spout("lines", TextSpout("books/*.txt"))
    builder.set_bolt("ignore", Ignore()).shuffle_grouping("lines")
    acked = topology_driver(builder).acked("lines")
    assert type(copy.deepcopy(acked)) is list


def test_the_plugin_loads_neither_arrow_nor_the_engine() -> None:
    program = "import sparkbolt.pytest_plugin, sys; print({'pyarrow', 'numpy', 'pyspark'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "set()\n"
