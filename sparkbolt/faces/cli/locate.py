"""Locate: loads a topology from its code.

An error in the name or in the module is reported as one sentence; a mistake of the caller is a ``WrongUseError``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from sparkbolt.api.config import did_you_mean
from sparkbolt.api.topology import Topology, TopologyDeclarer
from sparkbolt.base.engine_door import importing
from sparkbolt.base.exceptions import raised_at
from sparkbolt.errors import SparkboltError, WrongUseError

ATTRIBUTE = "topology"
"""The attribute that is used if a file has several topologies and none is named."""


class BrokenModuleError(SparkboltError):
    """The named module raises when it is imported, or its function when it is called; the exit code is 1."""


def load_topology(reference: str) -> Topology:
    """The topology of ``module:attribute``, ``file.py:attribute`` or ``file.py``.

    A module is looked for in the working directory first. The attribute may be a topology, a builder, or a function
    without arguments that returns one of them. A file without an attribute means its only topology, or else its
    attribute ``topology``.

    Raises:
        WrongUseError: there is no such module or attribute, or the attribute is not a topology.
        BrokenModuleError: importing the module or calling the attribute raises.
        SparkboltError: an error that the module itself raises, such as InvalidTopology.
    """
    place, _, attribute = reference.partition(":")
    if not place:
        raise WrongUseError(f"{reference!r} names no module: expected module:attribute, such as word_count:topology")
    module = _import(_module_of(place) if place.endswith(".py") else place)
    attribute = attribute or _only_topology(module, place)
    value: object = module
    for name in attribute.split("."):
        if not hasattr(value, name):
            raise WrongUseError(f"module {module.__name__!r} has no attribute {attribute!r}{_hint(name, value)}")
        value = getattr(value, name)
    return _as_topology(value, reference, module)


def topologies_in(holder: object) -> list[str]:
    """The names of the topologies among the attributes of a module; those of builders if there is no topology."""
    values = {name: value for name, value in vars(holder).items() if not name.startswith("_")}
    built = [name for name, value in values.items() if isinstance(value, Topology)]
    return built or [name for name, value in values.items() if isinstance(value, TopologyDeclarer)]


def _hint(name: str, holder: object) -> str:
    known = topologies_in(holder)
    others = [other for other in vars(holder) if not other.startswith("_")]
    near = did_you_mean(name, known) or did_you_mean(name, others)
    return near or (f": its topologies are {', '.join(known)}" if known else "")


def _only_topology(module: ModuleType, place: str) -> str:
    known = [ATTRIBUTE] if hasattr(module, ATTRIBUTE) else topologies_in(module)
    if len(known) == 1:
        return known[0]
    if not known:
        raise WrongUseError(
            f"{place} has no Topology and no TopologyBuilder: if one of its functions returns one, write {place}:NAME"
        )
    raise WrongUseError(f"{place} has several topologies: write {' or '.join(f'{place}:{name}' for name in known)}")


def _module_of(file: str) -> str:
    """The name of the module of a file, which this program can then import.

    Raises:
        WrongUseError: there is no such file.
    """
    path = Path(os.path.abspath(os.path.expanduser(file)))
    if not path.is_file():
        near = did_you_mean(path.name, [one.name for one in path.parent.glob("*.py")])
        raise WrongUseError(f"there is no file {file!r} in {Path.cwd()}{near}")
    if path.is_relative_to(Path.cwd()):
        return ".".join(path.relative_to(Path.cwd()).with_suffix("").parts)
    _look_first_in(str(path.parent))
    return path.stem


def look_in(py_files: Sequence[str]) -> None:
    """Let this program import the files that are sent to its executors: their places are added to ``sys.path``.

    Raises:
        WrongUseError: there is no such file.
    """
    for path in py_files:
        if "://" in path:
            continue
        full = os.path.abspath(path)
        if not os.path.exists(full):
            raise WrongUseError(f"--py-files names {path!r}, which does not exist")
        _look_first_in(full if full.endswith((".zip", ".egg")) else os.path.dirname(full))


def _look_first_in(place: str) -> None:
    if place not in sys.path:
        sys.path.insert(0, place)


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    _look_first_in(here)
    try:
        with importing(name):
            return importlib.import_module(name)
    except SparkboltError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            near = did_you_mean(name, [path.stem for path in Path(here).glob("*.py")])
            raise WrongUseError(f"there is no module {name!r} in {here} or on Python's path{near}") from error
        raise BrokenModuleError(f"module {name!r} needs module {error.name!r}, which is not installed") from error
    except Exception as error:
        raise BrokenModuleError(f"module {name!r} cannot be imported: {_sentence(error)}") from error


def _as_topology(value: object, reference: str, module: ModuleType) -> Topology:
    if callable(value) and not isinstance(value, type):
        try:
            value = value()
        except SparkboltError:
            raise
        except Exception as error:
            raise BrokenModuleError(f"{reference} cannot be called: {_sentence(error)}") from error
    if isinstance(value, TopologyDeclarer):
        return value.build()
    if isinstance(value, Topology):
        return value
    kind = "the class" if isinstance(value, type) else "of type"
    name = value.__name__ if isinstance(value, type) else type(value).__name__
    known = topologies_in(module)
    more = f": its topologies are {', '.join(known)}" if known else ""
    raise WrongUseError(
        f"{reference} is {kind} {name}, expected a Topology, a TopologyBuilder, or a function without arguments that "
        f"returns one{more}"
    )


def _sentence(error: Exception) -> str:
    """The text of an exception of a user's module, and where it was raised."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({error.filename}, line {error.lineno})"
    return f"{type(error).__name__}: {error}{raised_at(error)}"
