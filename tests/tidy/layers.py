"""Which room of ``sparkbolt/`` may import which, and what the engine-free rooms never import.

Imports inside functions and under ``TYPE_CHECKING`` count for the rooms, since a late import is still a use.
They do not count for cycles, since they are how a cycle of names is broken.
"""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from tests.tidy.repo import Source

ENGINE_LIBRARIES = frozenset({"pyspark", "py4j"})


@dataclass(frozen=True)
class Layer:
    """What a room may import: other rooms, and third-party libraries (None: any but Spark's)."""

    rooms: frozenset[str]
    libraries: frozenset[str] | None


def _layer(rooms: str, libraries: str | None) -> Layer:
    return Layer(frozenset(rooms.split()), None if libraries is None else frozenset(libraries.split()))


# From the ground up: a room imports itself and some of the rooms before it in this table. "door" is
# sparkbolt/__init__.py with names.py, listeners.py and types.py. The driver and the worker never import each other:
# both import wire, the values that cross processes; wire imports api, what users write; api imports base, arithmetic.
BELOW = "errors base"
API = f"{BELOW} api"
WIRE = f"{API} layout observe wire"
WORKER = f"{WIRE} worker.state worker"
DRIVER = f"{WIRE} driver.ledger driver"
ENGINE = f"{WORKER} {DRIVER}"
CONNECTORS = f"{API} files connectors"
SYSTEMS = "kafka rabbitmq kestrel sql lookup files tables sockets"
LETTERS = f"{CONNECTORS} connectors.kafka connectors.files"
ALL_CONNECTORS = " ".join([CONNECTORS, *(f"connectors.{system}" for system in SYSTEMS.split())])
LAYERS = {
    "version": _layer("version", ""),
    "errors": _layer("errors", ""),
    "background": _layer("background", ""),
    "base": _layer(BELOW, "numpy pyarrow"),
    "files": _layer(f"{BELOW} files", "pyarrow"),
    "api": _layer(API, "numpy pyarrow cloudpickle pandas"),
    "layout": _layer(f"{API} layout", "numpy"),
    "observe": _layer(f"{API} observe", None),
    "wire": _layer(WIRE, "numpy pyarrow cloudpickle"),
    "worker.state": _layer(f"{WIRE} worker.state", "numpy pyarrow"),
    "worker": _layer(WORKER, "numpy pyarrow cloudpickle"),
    "driver.ledger": _layer(f"{WIRE} driver.ledger", "numpy pyarrow"),
    "driver": _layer(DRIVER, "numpy pyarrow"),
    "telemetry": _layer(f"{API} observe telemetry", None),
    "windows": _layer(f"{WORKER} windows", "numpy pyarrow"),
    "connectors": _layer(CONNECTORS, None),
    "connectors.kafka": _layer(f"{CONNECTORS} connectors.kafka", None),
    "connectors.rabbitmq": _layer(f"{CONNECTORS} connectors.rabbitmq", None),
    "connectors.kestrel": _layer(f"{CONNECTORS} connectors.kestrel", None),
    "connectors.sql": _layer(f"{CONNECTORS} connectors.sql", None),
    "connectors.lookup": _layer(f"{CONNECTORS} connectors.sql connectors.lookup", None),
    "connectors.files": _layer(f"{CONNECTORS} connectors.files", None),
    "connectors.tables": _layer(f"{CONNECTORS} connectors.files connectors.tables", None),
    "connectors.sockets": _layer(f"{CONNECTORS} connectors.sockets", None),
    "streams": _layer(f"{WORKER} windows connectors connectors.sql connectors.lookup streams", "numpy"),
    "spouts": _layer(f"{ALL_CONNECTORS} spouts", None),
    "bolts": _layer(f"{ALL_CONNECTORS} bolts", None),
    "sim": _layer(f"{ENGINE} files streams sim", None),
    "control": _layer(f"{ENGINE} background version {LETTERS} control", None),
    "spark": _layer(f"{ENGINE} background files version control telemetry spark", None),
    "faces.drawing": _layer(f"{API} layout faces.drawing", ""),
    "faces.ui": _layer(f"{ENGINE} background files version control faces.drawing spark faces.ui", None),
    "faces.cli": _layer(f"{ENGINE} version windows {LETTERS} sim control spark faces.drawing faces.ui faces.cli", None),
    "faces": _layer("faces", ""),
    "launch": _layer(f"{BELOW} connectors.files spark faces.drawing faces.cli launch", None),
    "testing": _layer(f"{ENGINE} windows streams sim launch testing", None),
    "pytest_plugin": _layer("api streams sim testing pytest_plugin", "pytest"),
    "door": _layer(f"{CONNECTORS} observe version windows streams launch door", None),
}

# The library that brings a module, where the names differ.
LIBRARY_OF = {"google": "protobuf", "opentelemetry": "opentelemetry_sdk", "py4j": "pyspark"}

PURE_ROOMS = ("base", "api", "layout", "wire", "worker", "driver", "windows")
IMPURE_MODULES = frozenset(
    {"time", "random", "secrets", "sched", "signal"}
    | {"threading", "_thread", "concurrent", "multiprocessing", "subprocess"}
    | {"socket", "socketserver", "select", "selectors"}
)
IMPURE_NAME = re.compile(
    r"\.(?:now|utcnow|today)\(|urandom|getrandom|os\.times|uuid[14]"
    r"|random\.(?!Generator|SeedSequence|default_rng)\w|default_rng\(\)"
)

DOORS = {"__main__": "faces.cli", "names": "door", "listeners": "door", "types": "door"}
"""Modules of the package itself that belong to a room."""

_MODULE = re.compile(rf"sparkbolt\.({'|'.join(LAYERS)})(\.\w+)*")
"""A text that may name a module to be imported."""


@dataclass(frozen=True)
class Import:
    """One imported name: ``from a.b import c`` is ``a.b`` with name ``c``."""

    module: str
    name: str | None
    line: int
    at_load: bool


def room_of(module: str) -> str:
    """The room that a module of sparkbolt belongs to."""
    parts = module.split(".")
    if len(parts) == 1:
        return "door"
    inner = ".".join(parts[1:3])
    return inner if inner in LAYERS else DOORS.get(parts[1], parts[1])


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


@cache
@cache
def imports_of(source: Source) -> list[Import]:
    """All imports of a file, wherever they stand, and by name (``import_module``); relative ones are made absolute."""
    found: list[Import] = []
    is_package = source.path.endswith("/__init__.py")

    def visit(node: ast.AST, at_load: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, None, node.lineno, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                parts = source.module.split(".")
                base = parts[: len(parts) - node.level + is_package]
                module = ".".join([*base, module] if module else base)
            found.extend(Import(module, alias.name, node.lineno, at_load) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE.fullmatch(node.value):
            found.append(Import(node.value, None, node.lineno, False))
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            for statement in node.body:
                visit(statement, False)
            for statement in node.orelse:
                visit(statement, at_load)
        else:
            inside = at_load and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                visit(child, inside)

    visit(source.tree, True)
    return found


def check_rooms(source: Source, modules: frozenset[str]) -> Iterator[str]:
    """Every import goes to a room and a library that the importing room may use."""
    room = room_of(source.module)
    layer = LAYERS.get(room)
    if layer is None:
        yield source.at(1, "in no room of the house: give it a line in LAYERS, then run scripts/house")
        return
    for used in imports_of(source):
        top = used.module.split(".")[0]
        if top == "sparkbolt":
            whole = f"{used.module}.{used.name}" if used.name else used.module
            target = room_of(whole if whole in modules else used.module)
            if target not in layer.rooms:
                rooms = ", ".join(sorted(layer.rooms))
                yield source.at(used.line, f"{room} imports {used.module} (room {target}); it may import {rooms}")
        elif top in ENGINE_LIBRARIES:
            if room != "spark":
                yield source.at(used.line, f"{room} imports {used.module}; only sparkbolt/spark/ imports PySpark")
        elif top not in sys.stdlib_module_names and layer.libraries is not None and top not in layer.libraries:
            libraries = ", ".join(sorted(layer.libraries)) or "nothing"
            yield source.at(used.line, f"{room} imports {used.module}; beside Python's own it may import {libraries}")


def check_declared(source: Source, requirements: Iterable[str]) -> Iterator[str]:
    """Every library that the package imports is one of its requirements, not a guest of another's."""
    names = {re.split(r"[^\w.-]", text)[0].lower().replace("-", "_") for text in requirements}
    for used in imports_of(source):
        top = used.module.split(".")[0]
        known = top in sys.stdlib_module_names or top == "sparkbolt"
        if not known and LIBRARY_OF.get(top, top).lower() not in names:
            yield source.at(used.line, f"imports {used.module}, which is no dependency and no extra in pyproject.toml")


def check_pure(source: Source) -> Iterator[str]:
    """Core and windows read no clock and draw no random number, start no thread and open no socket."""
    if room_of(source.module).split(".")[0] not in PURE_ROOMS:
        return
    uses = [(used.line, used.module) for used in imports_of(source) if used.module.split(".")[0] in IMPURE_MODULES]
    uses += [(number, match[0]) for number, line in enumerate(source.lines, 1) if (match := IMPURE_NAME.search(line))]
    for number, name in uses:
        yield source.at(number, f"{name}: time, seeds and random stamps are arguments here")


def check_cycles(sources: list[Source]) -> Iterator[str]:
    """No circle of imports among the modules, counting those that run when a module is loaded."""
    by_module = {source.module: source for source in sources}
    lines: dict[tuple[str, str], int] = {}
    graph: dict[str, set[str]] = {module: set() for module in by_module}
    for module, source in by_module.items():
        for used in imports_of(source):
            if not used.at_load:
                continue
            whole = f"{used.module}.{used.name}" if used.name else used.module
            target = whole if whole in by_module else used.module
            if target in by_module:
                graph[module].add(target)
                lines.setdefault((module, target), used.line)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        # graphlib lists a cycle against the arrows: each module is imported by the next.
        cycle = list(reversed(error.args[1]))
        line = lines[cycle[0], cycle[1]]
        yield by_module[cycle[0]].at(line, f"import cycle: {' -> '.join(cycle)}")
