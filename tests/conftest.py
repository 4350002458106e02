"""What holds for all tests: markers that follow from the place, and what continuous integration adds."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from _pytest.mark.expression import Expression
from xdist.scheduler import LoadScopeScheduling

from sparkbolt.launch import load  # noqa: F401  for those who import a topology from where it is
from tests import durations, spark_session
from tests.patience import TEST_SECS
from tests.services.fixtures import kafka as kafka
from tests.services.fixtures import mariadb as mariadb
from tests.services.fixtures import postgresql as postgresql
from tests.services.fixtures import rabbitmq as rabbitmq
from tests.services.fixtures import zookeeper as zookeeper

pytest.register_assert_rewrite("tests.spark.killed_checks")  # so that a failed check says what it compared

SHARED = (
    "tests/contract/",
    "tests/spark/test_beginnings.py",
    "tests/spark/test_cluster.py",
    "tests/spark/test_kafka.py",
    "tests/spark/test_kill.py",
    "tests/spark/test_new_session.py",
    "tests/spark/test_sinks.py",
    "tests/spark/test_spark_sources.py",
    "tests/spark/test_state_reading.py",
    "tests/spark/test_supervisor.py",
)
"""Where tests on Spark share what their module sets up: a topology that runs takes a while to come up."""
EXAMPLES_ON_SPARK = (
    "sparkbolt/spark/",
    "sparkbolt/api/running.py::sparkbolt.api.running.RunningTopology",
)
"""Where the examples of docstrings start topologies."""
PLACES: dict[str, set[str]] = {
    "tests/unit/": set(),
    "tests/tidy/": set(),
    "tests/spark/": {"spark"},
    "tests/services/": {"service"},
    "tests/browser/": {"service"},
}
"""Folders that no test leaves out of a stage or brings into one: each test has these marks of ``STAGES``, or more."""
STAGES = {"campaign", "service", "spark", "versions"}
"""The marks by which ``scripts/test`` tells its stages."""
WRITES_NO_BYTECODE = sys.dont_write_bytecode
IN_CI = os.environ.get("CI") == "true"

# No deadline: a machine with two busy cores is no reason for a failure. In CI the examples are the same each
# time, so that a red run can be had again; at home they differ, so that there is something to find.
# `scripts/test quick` takes few of them.
hypothesis.settings.register_profile("home", deadline=None)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=20)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if IN_CI else "home")


def pytest_configure(config: pytest.Config) -> None:
    """Ctrl-C is heard, by the programs that tests start too, where a shell has started all in the background.

    And no topology of a test, or of a program that a test starts, is registered in the home of the user, or writes down
    which classes it has loaded.
    """
    durations.register(config)
    config.pluginmanager.import_plugin("sparkbolt.pytest_plugin")  # where an older install has no entry point for it
    config.pluginmanager.register(spark_session)  # for examples in docstrings, too, which are outside of this folder
    os.environ.setdefault("SPARKBOLT_CACHE", "off")
    before = os.environ.get("SPARKBOLT_HOME")
    home = os.environ["SPARKBOLT_HOME"] = tempfile.mkdtemp(prefix="sparkbolt-tests-home-")

    def restore() -> None:
        shutil.rmtree(home, ignore_errors=True)
        os.environ.pop("SPARKBOLT_HOME", None)
        if before is not None:
            os.environ["SPARKBOLT_HOME"] = before

    config.add_cleanup(restore)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def place_of(path: str) -> str | None:
    """The folder of ``PLACES`` that a path is in."""
    return next((place for place in PLACES if path.startswith(place)), None)


@functools.cache
def may_be_asked(place: str, asked: str) -> bool:
    """Whether a test in a folder of ``PLACES`` may have the marks that are asked for."""
    marks = PLACES[place]
    further = {"slow"} if not marks else {"slow", "campaign", "lesser", *STAGES} - marks
    chosen = Expression.compile(asked)
    subsets = chain.from_iterable(combinations(further, size) for size in range(len(further) + 1))
    return any(chosen.evaluate(lambda name, names={*marks, *subset}, **_: name in names) for subset in subsets)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave unread the folders whose tests have none of the marks that are asked for; None where others may say."""
    asked = config.option.markexpr
    place = place_of(f"{collection_path}/".removeprefix(f"{config.rootpath}/"))
    return True if asked and place and not may_be_asked(place, asked) else None


def pytest_collection() -> None:
    """Keep compiled modules of tests, with their rewritten assertions: reading them again takes half the time.

    This holds for reading the tests alone. A test may write a module twice within a second. Nor does the garbage
    collector look again and again at what is read.
    """
    sys.dont_write_bytecode = False
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What follows from a test's place: its session, its patience, and whether it shares what its module sets up.

    What takes longest begins first, so that the processes that share the tests end at about the same time.
    """
    for item in items:
        if item.nodeid.startswith(EXAMPLES_ON_SPARK):
            item.add_marker(pytest.mark.spark)
            # An example that ran first would start a session with other settings, with which no later test works.
            item.fixturenames.append("spark")  # type: ignore[attr-defined]
        if item.get_closest_marker("spark") and shares_its_module(item) and not item.nodeid.startswith(SHARED):
            raise pytest.UsageError(f"{item.nodeid} shares what its module sets up: name the module in SHARED")
        marks = {mark.name for mark in item.iter_markers()}
        place = place_of(item.nodeid)
        if place and (not PLACES[place] <= marks or (marks & STAGES and not PLACES[place])):
            raise pytest.UsageError(f"{item.nodeid} has the marks {sorted(marks)}: no stage would find it there")
        if marks & {"campaign", "service", "slow", "spark"} and "timeout" not in marks:
            item.add_marker(pytest.mark.timeout(TEST_SECS))
    items.sort(
        key=lambda item: (
            not item.nodeid.startswith(SHARED),
            item.get_closest_marker("campaign") is None,
            item.get_closest_marker("slow") is None,
        )
    )


def pytest_collection_finish() -> None:
    """What was collected lives to the end: the garbage collector, which some tests call, no longer looks at it."""
    sys.dont_write_bytecode = WRITES_NO_BYTECODE
    gc.enable()
    gc.collect()
    gc.freeze()


def shares_its_module(item: pytest.Item) -> bool:
    """Whether a test has a fixture that is set up once for its module."""
    fixtures = getattr(item, "_fixtureinfo", None)
    asked = fixtures.name2fixturedefs.values() if fixtures is not None else ()
    return any(definition.scope == "module" for definitions in asked for definition in definitions)


class SharedModules(LoadScopeScheduling):
    """Tests that share what their module sets up are run by one process, others by whichever is free."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if nodeid.startswith(SHARED) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharedModules | None:
    """For ``--dist loadscope``; other ways have pytest-xdist's own schedulers."""
    return SharedModules(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home of the test's own, for it and for the programs that it starts."""
    place = tmp_path / "home"
    monkeypatch.setenv("SPARKBOLT_HOME", str(place))
    return place


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A service test may be skipped where there is no server, except in CI, where it must run."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("service"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but in CI its server must be there: {report.longrepr}"
    return report
