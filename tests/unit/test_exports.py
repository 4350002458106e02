"""What users touch has a name at the door, a type and a sentence."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

import sparkbolt
from docs.reference import DOORS
from sparkbolt import BasicBolt, RunningTopology, Topology
from tests.docs.pages import ROOT, site_pages, text_of

TOUCHED = {
    "BasicCollector", "BoltCollector", "ColumnCollector", "SpoutCollector", "WindowCollector", "TupleWindow",
    "KeyValueState", "RunningTopology", "MicroBatchReport", "TopologyMetrics", "ComponentMetrics", "FailedTree",
    "Story", "Progress", "Promotion", "EnoughRead", "LateTuple", "BoltDeclarer", "Component", "GroupingContext",
    "Hop", "Fail", "ErrorReport", "Telemetry", "TelemetrySink",
}  # fmt: skip

IMPORT = re.compile(r"\bfrom (sparkbolt[\w.]*) import (\([^)]*\)|[^\n;'\"]+)|\bimport (sparkbolt[\w.]*)")
# Pages that show the code at work, and so import what is not public.
ON_THE_INSIDE = {"docs/how-it-works.md"}
READ_BY_USERS = [*site_pages(), *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "examples").glob("*.py"))]


def exports_of(door: str) -> set[str]:
    return set(importlib.import_module(door).__all__)


def not_public_in(text: str) -> list[str]:
    """What a text imports of ours otherwise than from a public door."""
    wrong = []
    for module, names, alone in IMPORT.findall(text):
        if alone or module not in DOORS:
            wrong += [alone or module] if (alone or module) not in DOORS else []
            continue
        listed = re.sub(r"#[^\n]*", "", names).strip("() \n").split(",")
        imported = {name.split()[0] for name in listed if name.strip()}
        wrong += [f"{module}.{name}" for name in sorted(imported - exports_of(module))]
    return wrong


@pytest.mark.parametrize("door", DOORS)
def test_every_exported_name_exists_and_is_on_a_reference_page(door: str) -> None:
    names = list(importlib.import_module(door).__all__)
    assert len(names) == len(set(names))
    missing = [name for name in names if not hasattr(importlib.import_module(door), name)]
    assert not missing
    reference = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").glob("*.md"))
    unsaid = [name for name in names if f"\n### {name}\n" not in reference]
    assert not unsaid, f"{door} exports what no page of docs/api has: python -m docs.reference"


@pytest.mark.parametrize("path", READ_BY_USERS)
def test_code_shown_to_users_imports_only_from_public_modules(path: str) -> None:
    wrong = not_public_in(text_of(path))
    assert path in ON_THE_INSIDE or not wrong, f"{path} imports {wrong}; public are the names in __all__ of {[*DOORS]}"


def test_pages_on_the_inside_are_named_only_while_they_need_it() -> None:
    assert all(not_public_in(text_of(page)) for page in ON_THE_INSIDE)


def test_everything_that_users_need_is_exported_by_a_public_module() -> None:
    assert {name for door in DOORS for name in exports_of(door)} >= TOUCHED
    assert len(sparkbolt.__all__) <= 42, "what few programs need is in sparkbolt.listeners, types or errors"


def test_dir_shows_the_public_names_only() -> None:
    assert sorted(dir(sparkbolt)) == sorted([*sparkbolt.__all__, "__version__"])


@pytest.mark.parametrize("name", sorted(set(sparkbolt.__all__)))
def test_every_export_has_a_docstring(name: str) -> None:
    thing = getattr(sparkbolt, name)
    assert inspect.getdoc(thing)
    for attribute, member in vars(thing).items() if inspect.isclass(thing) else ():
        if inspect.isfunction(member) and not attribute.startswith("_"):
            assert inspect.getdoc(member), f"{name}.{attribute}"


def test_start_and_run_have_the_same_parameters_as_their_implementations() -> None:
    from sparkbolt.control.operable import Operable
    from sparkbolt.faces.cli import program
    from sparkbolt.spark import running_on_spark, starting

    there = set(inspect.signature(starting.start).parameters) - {"topology"}
    assert set(inspect.signature(Topology.start).parameters) - {"self"} == there
    own = set(inspect.signature(program.run).parameters) - {"topology", "options"}
    assert (
        set(inspect.signature(Topology.run).parameters) - {"self"} == there - {"open_secs"} | own
    )  # its limits say it
    assert issubclass(running_on_spark.RunningOnSpark, RunningTopology)
    engine = {"start", "run_id", "collected_bytes", "lane", "topology"}
    own = {name for name in vars(running_on_spark.RunningOnSpark) if not name.startswith("_")}
    assert own - engine <= set(dir(RunningTopology)) | set(dir(Operable))


class CountNothing(BasicBolt):
    def execute(self, tup: sparkbolt.Tuple, collector: sparkbolt.types.BasicCollector) -> None:
        """Nothing."""
