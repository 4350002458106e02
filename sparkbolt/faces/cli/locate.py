"""Locate: finds a topology by its name.

An error in the name or in the module is reported as one sentence; a mistake of the caller is a ``WrongUseError``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from sparkbolt.api.config import did_you_mean
from sparkbolt.api.topology import Topology, TopologyBuilder
from sparkbolt.base.engine_door import importing
from sparkbolt.base.exceptions import raised_at
from sparkbolt.errors import SparkboltError, WrongUseError


class BrokenModuleError(SparkboltError):
    """The named module raises when it is imported, or its function when it is called; the exit code is 1."""


def load_topology(reference: str) -> Topology:
    """The topology that ``module:attribute`` names; the module is looked for in the working directory first.

    The attribute may be a topology, a builder, or a function without arguments that returns one of them.

    Raises:
        WrongUseError: there is no such module or attribute, or the attribute is not a topology.
        BrokenModuleError: importing the module or calling the attribute raises.
        SparkboltError: an error that the module itself raises, such as InvalidTopology.
    """
    module_name, colon, attribute = reference.partition(":")
    if not colon or not module_name or not attribute:
        raise WrongUseError(f"{reference!r} names no topology: expected module:attribute, such as word_count:topology")
    if module_name.endswith(".py") or os.sep in module_name:
        dotted = module_name.removesuffix(".py").replace(os.sep, ".").strip(".")
        raise WrongUseError(f"{module_name!r} is a file, expected a module: did you mean {dotted}:{attribute}?")
    module = _import(module_name)
    value: object = module
    for name in attribute.split("."):
        if not hasattr(value, name):
            hint = did_you_mean(name, [known for known in vars(value) if not known.startswith("_")])
            raise WrongUseError(f"module {module_name!r} has no attribute {attribute!r}{hint}")
        value = getattr(value, name)
    return _as_topology(value, reference)


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
        place = full if full.endswith((".zip", ".egg")) else os.path.dirname(full)
        if place not in sys.path:
            sys.path.insert(0, place)


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        with importing(name):
            return importlib.import_module(name)
    except SparkboltError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise WrongUseError(f"there is no module {name!r} in {here} or on Python's path") from error
        raise BrokenModuleError(f"module {name!r} needs module {error.name!r}, which is not installed") from error
    except Exception as error:
        raise BrokenModuleError(f"module {name!r} cannot be imported: {_sentence(error)}") from error


def _as_topology(value: object, reference: str) -> Topology:
    if callable(value) and not isinstance(value, type):
        try:
            value = value()
        except SparkboltError:
            raise
        except Exception as error:
            raise BrokenModuleError(f"{reference} cannot be called: {_sentence(error)}") from error
    if isinstance(value, TopologyBuilder):
        return value.build()
    if isinstance(value, Topology):
        return value
    raise WrongUseError(
        f"{reference} is {'the class' if isinstance(value, type) else 'of type'} "
        f"{value.__name__ if isinstance(value, type) else type(value).__name__}, expected a Topology, a "
        "TopologyBuilder, or a function without arguments that returns one"
    )


def _sentence(error: Exception) -> str:
    """The text of an exception of a user's module, and where it was raised."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({error.filename}, line {error.lineno})"
    return f"{type(error).__name__}: {error}{raised_at(error)}"
