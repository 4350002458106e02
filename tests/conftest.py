"""What holds for all tests: markers that follow from the place, and what continuous integration adds."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import Any

import hypothesis
import pytest

from tests.services.fixtures import kafka as kafka
from tests.services.fixtures import rabbitmq as rabbitmq
from tests.services.fixtures import zookeeper as zookeeper

IN_CI = os.environ.get("CI") == "true"

# No deadline: a machine with two busy cores is no reason for a failure. In CI the examples are the same each
# time, so that a red run can be had again; at home they differ, so that there is something to find.
hypothesis.settings.register_profile("home", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if IN_CI else "home")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What follows from where a test is, and from what it asks for.

    The doctests of sparkbolt/spark/ need a Spark session like any other test there. Tests on Spark that share what
    their module has set up are run by one process, others by whichever is free: each has a session of its own.
    """
    for item in items:
        if item.nodeid.startswith("sparkbolt/spark/"):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") and shares_its_module(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def shares_its_module(item: pytest.Item) -> bool:
    """Whether a test has a fixture that is set up once for its module."""
    fixtures = getattr(item, "_fixtureinfo", None)
    asked = fixtures.name2fixturedefs.values() if fixtures is not None else ()
    return any(definition.scope == "module" for definitions in asked for definition in definitions)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests, as ``local[2,4]``: a test that asks for it is to be marked ``spark``."""
    from sparkbolt.spark.session import make_session

    session = make_session("tests", "local[2,4]")
    yield session
    session.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A service test may be skipped where there is no server, except in CI, where it must run."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("service"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but in CI its server must be there: {report.longrepr}"
    return report
