"""Imports go down only, and each rule about them can fail."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tomllib

import pytest

from tests.tidy.layers import check_cycles, check_declared, check_pure, check_rooms
from tests.tidy.repo import ROOT, Source, python_of, repository

PACKAGE = python_of(repository(), "sparkbolt")
MODULES = frozenset(source.module for source in PACKAGE)
EXTRAS = ("confluent_kafka", "pika", "kazoo")
# These rooms work without Spark; whoever writes or tests a topology loads them.
LIGHT_DOORS = ("sparkbolt.names", "sparkbolt.windows", "sparkbolt.spouts", "sparkbolt.bolts", "sparkbolt.testing")


def test_a_module_imports_only_what_its_room_may() -> None:
    assert [problem for source in PACKAGE for problem in check_rooms(source, MODULES)] == []


def test_packages_without_an_engine_read_no_clock_and_draw_no_random_number() -> None:
    assert [problem for source in PACKAGE for problem in check_pure(source)] == []


def test_no_import_cycles() -> None:
    assert list(check_cycles(PACKAGE)) == []


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRA_REQUIREMENTS = PROJECT["optional-dependencies"].values()
REQUIREMENTS = [*PROJECT["dependencies"], *itertools.chain.from_iterable(EXTRA_REQUIREMENTS)]


def test_every_imported_library_is_declared() -> None:
    assert [problem for source in PACKAGE for problem in check_declared(source, REQUIREMENTS)] == []


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)


def _loaded_by(module: str, missing: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Import ``module`` in a fresh interpreter that has not ``missing``; print what of Spark it loads."""
    code = f"""
import sys
sys.modules.update(dict.fromkeys({missing!r}))
import {module}
print(*(name for name in ("pyspark", "py4j") if name in sys.modules))
"""
    return _run(code)


@pytest.mark.parametrize("module", [door for door in LIGHT_DOORS if door in MODULES])
def test_public_modules_load_neither_spark_nor_packages_of_extras(module: str) -> None:
    run = _loaded_by(module, missing=EXTRAS)
    assert run.returncode == 0, (
        f"import {module} fails without {EXTRAS}; import them where they are used:\n{run.stderr}"
    )
    assert run.stdout.split() == [], (
        f"import {module} loads {run.stdout.strip()}; import the engine where it is started"
    )


@pytest.mark.parametrize("module", ["data_source", "processor"])
def test_process_started_by_spark_before_any_task_loads_nothing_that_only_tasks_need(module: str) -> None:
    """Spark makes a process each to look at the source, to plan it and to ask which states there are."""
    run = _run(f"import sys, sparkbolt.spark.{module}; print(*(n for n in sys.modules if n.startswith('sparkbolt')))")
    assert run.returncode == 0, run.stderr
    light = {
        "sparkbolt",
        "sparkbolt.version",
        "sparkbolt.spark",
        f"sparkbolt.spark.{module}",
        "sparkbolt.spark.job_bundle",
    }
    assert set(run.stdout.split()) <= light | {"sparkbolt.spark.driver_rpc_client"}


def test_executor_code_loads_no_driver_module() -> None:
    """All are imported in one process, since what each loads is part of what they load together."""
    modules = ("daemon", "executor", "source_task", "level_task", "lane_query", "crash_shield")
    doors = ", ".join(f"sparkbolt.spark.{module}" for module in modules)
    run = _run(f"import sys, {doors}; print(*(n for n in sys.modules if n.startswith('sparkbolt')))")
    assert run.returncode == 0, run.stderr
    assert [name for name in run.stdout.split() if name.startswith("sparkbolt.driver")] == []


# ---- each rule can fail


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("sparkbolt/wire/plan.py", "import pyspark"),
        ("sparkbolt/wire/plan.py", "from sparkbolt.sim import engine"),
        ("sparkbolt/wire/plan.py", "from sparkbolt import Bolt"),
        ("sparkbolt/wire/plan.py", "from ...sim import engine"),
        ("sparkbolt/wire/plan.py", "def f():\n    from sparkbolt.spark import session"),
        ("sparkbolt/wire/plan.py", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
        ("sparkbolt/base/ids.py", "from sparkbolt.api import tuples"),
        ("sparkbolt/api/topology.py", "from sparkbolt.wire.plan import Entry"),
        ("sparkbolt/api/topology.py", "import importlib; importlib.import_module('sparkbolt.spark.running_on_spark')"),
        ("sparkbolt/worker/tasks.py", "from sparkbolt.driver.coordinator import Coordinator"),
        ("sparkbolt/driver/coordinator.py", "def f():\n    from sparkbolt.worker.tasks import BoltTask"),
        ("sparkbolt/errors.py", "import numpy"),
        ("sparkbolt/connectors/files/plain_file.py", "from py4j.java_gateway import JavaGateway"),
        ("sparkbolt/spark/data_source.py", "from sparkbolt.spouts import kafka"),
        ("sparkbolt/helpers.py", "import json"),
    ],
)
def test_an_import_against_the_allowed_direction_is_detected(path: str, line: str) -> None:
    (problem,) = check_rooms(Source(path, line), frozenset())
    assert problem.startswith(f"{path}:{line.count(chr(10)) + 1}: ")


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from time import monotonic",
        "import threading",
        "import os\nkey = os.urandom(8)",
        "from datetime import datetime\nnow = datetime.now()",
        "import uuid\nkey = uuid.uuid4()",
        "import numpy as np\nx = np.random.rand()",
        "import numpy as np\nx = np.random.default_rng()",
    ],
)
def test_a_clock_or_randomness_in_a_pure_room_is_seen(text: str) -> None:
    (problem,) = check_pure(Source("sparkbolt/base/ids.py", text))
    assert problem.startswith(f"sparkbolt/base/ids.py:{text.count(chr(10)) + 1}: ")
    assert list(check_pure(Source("sparkbolt/spark/session.py", text))) == []


def test_an_undeclared_library_is_detected() -> None:
    text = "import json, zstandard\nfrom google.protobuf import message\nfrom confluent_kafka import Consumer"
    declared = ["protobuf>=6", "confluent-kafka[avro]>=2"]
    (problem,) = check_declared(Source("sparkbolt/connectors/files/plain_file.py", text), declared)
    assert problem.startswith("sparkbolt/connectors/files/plain_file.py:1: imports zstandard")


def test_an_import_cycle_is_detected_and_a_late_import_breaks_it() -> None:
    a = Source("sparkbolt/base/a.py", "import json\nfrom sparkbolt.base import b")
    b = Source("sparkbolt/base/b.py", "from sparkbolt.base.c import x")
    c = Source("sparkbolt/base/c.py", "import sparkbolt.base.a")
    (problem,) = check_cycles([a, b, c])
    assert {"sparkbolt.base.a", "sparkbolt.base.b", "sparkbolt.base.c"} <= set(problem.split())
    assert problem.startswith((f"{a.path}:2: ", f"{b.path}:1: ", f"{c.path}:1: "))
    late = Source(c.path, "def f():\n    import sparkbolt.base.a")
    assert list(check_cycles([a, b, late])) == []
