"""The rules of the house: which room of ``sparkbolt/`` may import which, and what never enters ``core``.

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

from tests.tidy.repo import Source, Violation

ENGINE_LIBRARIES = frozenset({"pyspark", "py4j"})


@dataclass(frozen=True)
class Layer:
    """What a room may import: other rooms, and third-party libraries (None: any but Spark's)."""

    rooms: frozenset[str]
    libraries: frozenset[str] | None


def _layer(rooms: str, libraries: str | None) -> Layer:
    return Layer(frozenset(rooms.split()), None if libraries is None else frozenset(libraries.split()))


# From the ground up: a room imports itself and some of those that stand before it in this table. "door" is
# sparkbolt/__init__.py with names.py, which it loads; "core" is its __init__.py. The driver and the worker never import
# each other: both import protocol, which imports model, which imports base.
BELOW = "errors core core.base"
MODEL = f"{BELOW} core.model"
PROTOCOL = f"{MODEL} core.protocol"
WORKER = f"{PROTOCOL} core.state core.worker"
DRIVER = f"{PROTOCOL} core.driver.ledger core.driver"
ALL_OF_CORE = f"{WORKER} {DRIVER}"
LAYERS = {
    "version": _layer("version", ""),
    "errors": _layer("errors", ""),
    "background": _layer("background", ""),
    "core": _layer("errors core", ""),
    "core.base": _layer(BELOW, "numpy pyarrow"),
    "files": _layer(f"{BELOW} files", "pyarrow"),
    "core.model": _layer(MODEL, "numpy pyarrow cloudpickle pandas"),
    "core.protocol": _layer(PROTOCOL, "numpy pyarrow cloudpickle"),
    "core.state": _layer(f"{PROTOCOL} core.state", "numpy pyarrow"),
    "core.worker": _layer(WORKER, "numpy pyarrow cloudpickle"),
    "core.driver.ledger": _layer(f"{PROTOCOL} core.driver.ledger", "numpy pyarrow"),
    "core.driver": _layer(DRIVER, "numpy pyarrow"),
    "windows": _layer(f"{WORKER} windows", "numpy pyarrow"),
    "drawing": _layer(f"{MODEL} drawing", ""),
    "spouts": _layer(f"{MODEL} files spouts", None),
    "bolts": _layer(f"{MODEL} files spouts bolts", None),
    "sim": _layer(f"{ALL_OF_CORE} files sim", None),
    "operate": _layer(f"{ALL_OF_CORE} background files version spouts bolts operate", None),
    "telemetry": _layer(f"{MODEL} telemetry", None),
    "spark": _layer(f"{ALL_OF_CORE} background files version operate telemetry spark", None),
    "ui": _layer(f"{ALL_OF_CORE} background files version operate drawing spark ui", None),
    "cli": _layer(f"{ALL_OF_CORE} files version drawing windows spouts bolts sim operate spark ui cli", None),
    "launch": _layer(f"{BELOW} bolts drawing spark cli launch", None),
    "testing": _layer(f"{ALL_OF_CORE} windows sim launch testing", None),
    "door": _layer(f"{MODEL} version windows launch door", None),
}

CORE_ROOMS = frozenset(f"sparkbolt.{room}" for room in LAYERS if room.split(".")[0] == "core")

# The library that brings a module, where the names differ.
LIBRARY_OF = {"google": "protobuf", "opentelemetry": "opentelemetry_sdk", "py4j": "pyspark"}

PURE_ROOMS = ("core", "windows")
IMPURE_MODULES = frozenset(
    {"time", "random", "secrets", "sched", "signal"}
    | {"threading", "_thread", "concurrent", "multiprocessing", "subprocess"}
    | {"socket", "socketserver", "select", "selectors"}
)
# A name here stands for itself; with a dot at its end, for all that is below it.
IMPURE_NAMES = (
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "os.urandom",
    "os.getrandom",
    "os.times",
    "uuid.uuid1",
    "uuid.uuid4",
    "numpy.random.",
)
SEEDED_NAMES = ("numpy.random.Generator", "numpy.random.SeedSequence", "numpy.random.default_rng")


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
    if parts[1] == "core":
        folders = parts[1:] if module in CORE_ROOMS else parts[1:-1]
        return ".".join(folders) or "core"
    return {"__main__": "cli", "names": "door"}.get(parts[1], parts[1])


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


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


def check_rooms(source: Source, modules: frozenset[str]) -> Iterator[Violation]:
    """Every import goes to a room and a library that the importing room may use."""
    room = room_of(source.module)
    layer = LAYERS.get(room)
    if layer is None:
        mend = "put the module into one of the rooms, or give the room a line in LAYERS and in the design"
        yield source.violation(1, f"{source.path} is in no known room of the house", mend)
        return
    for used in imports_of(source):
        top = used.module.split(".")[0]
        if top == "sparkbolt":
            whole = f"{used.module}.{used.name}" if used.name else used.module
            target = room_of(whole if whole in modules else used.module)
            if target not in layer.rooms:
                mend = f"{room} may import {', '.join(sorted(layer.rooms))}; hand the thing in as an argument"
                yield source.violation(used.line, f"{room} imports {used.module} (room {target})", mend)
        elif top in ENGINE_LIBRARIES:
            if room != "spark":
                mend = "only sparkbolt/spark/ imports PySpark; move the code there, or take a value from it"
                yield source.violation(used.line, f"{room} imports {used.module}", mend)
        elif top not in sys.stdlib_module_names and layer.libraries is not None and top not in layer.libraries:
            allowed = ", ".join(sorted(layer.libraries)) or "nothing"
            mend = f"beside the standard library {room} may import {allowed}; move the code to another room"
            yield source.violation(used.line, f"{room} imports {used.module}", mend)


def check_declared(source: Source, requirements: Iterable[str]) -> Iterator[Violation]:
    """Every library that the package imports is one of its requirements, not a guest of another's."""
    names = {re.split(r"[^\w.-]", text)[0].lower().replace("-", "_") for text in requirements}
    for used in imports_of(source):
        top = used.module.split(".")[0]
        known = top in sys.stdlib_module_names or top == "sparkbolt"
        if not known and LIBRARY_OF.get(top, top).lower() not in names:
            mend = f"add {top} to the dependencies or an extra in pyproject.toml, and make the pins again"
            yield source.violation(used.line, f"imports {used.module}, which is not declared", mend)


def _aliases(source: Source) -> dict[str, str]:
    """What each imported name stands for: ``np`` for ``numpy``, ``dt`` for ``datetime.datetime``."""
    names = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.AST, names: dict[str, str]) -> str | None:
    """The full dotted name of an expression such as ``dt.now``, or None if it does not start at an import."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, names)
        return f"{base}.{node.attr}" if base else None
    return None


def _is_at(name: str, places: Iterable[str]) -> bool:
    return any(name == place or (place.endswith(".") and name.startswith(place)) for place in places)


def check_pure(source: Source) -> Iterator[Violation]:
    """Core and windows read no clock and draw no random number, start no thread and open no socket."""
    if room_of(source.module).split(".")[0] not in PURE_ROOMS:
        return
    mend = "time, seeds and random stamps are arguments there: let the engine hand them in"
    for used in imports_of(source):
        if used.module.split(".")[0] in IMPURE_MODULES:
            yield source.violation(used.line, f"a pure module imports {used.module}", mend)
    names = _aliases(source)
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.expr):
            continue
        name = _dotted(node, names)
        if name and _is_at(name, IMPURE_NAMES) and not _is_at(name, SEEDED_NAMES):
            yield source.violation(node.lineno, f"a pure module uses {name}", mend)
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            called = _dotted(node.func, names)
            if called == "numpy.random.default_rng":
                yield source.violation(node.lineno, f"{called}() without a seed", mend)


def check_cycles(sources: list[Source]) -> Iterator[Violation]:
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
        mend = "move what both need into a third module, or import inside the function that needs it"
        line = lines[cycle[0], cycle[1]]
        yield by_module[cycle[0]].violation(line, f"import cycle: {' -> '.join(cycle)}", mend)
