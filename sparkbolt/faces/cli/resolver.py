"""Resolver: what the TOPOLOGY of a command means: the NAME of a topology, the DIR of its checkpoint, or its code.

Rule 1: ``module:attribute``, ``shop.py`` and ``shop.py:topology`` are code.
Rule 2: any other text is the name or id of a registered topology, or else the directory or URL of a checkpoint; so a
name is preferred to a folder of the same name, and ``./shop`` means the folder.
Rule 3: a command that needs something else than was written looks it up where topologies are registered.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, suppress
from pathlib import Path

from sparkbolt.api.config import did_you_mean
from sparkbolt.api.dead_letters import FILE
from sparkbolt.api.topology import Topology
from sparkbolt.base.locations import local_directory
from sparkbolt.control.description import Description
from sparkbolt.control.documents import TopologyEntry
from sparkbolt.control.home import AmbiguousTopologyError, HomeError, UnknownTopologyError
from sparkbolt.control.letters.topic import KAFKA
from sparkbolt.control.operator import Operator
from sparkbolt.driver.ledger.ledger_files import FORMAT_FILE
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli.locate import load_topology
from sparkbolt.faces.cli.operate.operator_access import operator_of
from sparkbolt.spark.checkpoint_files import open_files

FORMS = "module:attribute, such as word_count:topology, a file, such as word_count.py, or the name of a topology"


def is_code(text: str) -> bool:
    """Whether a text names code.

    >>> [is_code(text) for text in ("shop:topology", "./shop.py", "shop", "./shop", "s3a://bucket/shop", "/var/18:00")]
    [True, True, False, False, False, False]
    """
    place, colon, _ = text.partition(":")
    return "://" not in text and (place.endswith(".py") or (colon != "" and "/" not in place))


def topology_of(text: str) -> Topology:
    """The topology itself, from its code.

    Raises:
        WrongUseError: the text names no code, and no topology that ``sparkbolt run`` has started from code.
        BrokenModuleError: the code raises.
        SparkboltError: an error that the code itself raises, such as InvalidTopology.
    """
    if is_code(text):
        return load_topology(text)
    operator = operator_of(None)
    try:
        entry = operator.find(text)
    except (UnknownTopologyError, HomeError):
        raise WrongUseError(f"{text!r} names no topology: expected {FORMS}{_hint(text, operator)}") from None
    except AmbiguousTopologyError as error:
        raise WrongUseError(str(error)) from None
    name = entry["name"]
    runs = [entry, *(one for one in operator.topologies() if one["name"] == name)]
    reference = next(filter(None, (_code_in(one["command"]) for one in runs)), None)
    if reference is None:
        raise WrongUseError(
            f"the code of topology {name!r} is unknown, because a program started it, or its start is no longer "
            "registered: write module:attribute"
        )
    told = f"topology {name!r} was started by `sparkbolt run {reference}`"
    try:
        loaded = load_topology(reference)
    except WrongUseError as error:
        raise WrongUseError(f"{told}, but {error}; use the directory in which it was started") from None
    if loaded.name != name:
        raise WrongUseError(f"{told}, but here this is topology {loaded.name!r}: use the directory of its code")
    return loaded


def entry_of(operator: Operator, text: str) -> TopologyEntry:
    """The entry of a registered topology, or of a checkpoint.

    Raises:
        WrongUseError: the text names neither, or more than one topology.
        HomeError: the home cannot be read.
    """
    name = load_topology(text).name if is_code(text) else text
    try:
        return operator.find(name)
    except AmbiguousTopologyError as error:
        raise WrongUseError(str(error)) from None
    except UnknownTopologyError as error:
        said = str(error)
    if is_code(text):
        raise WrongUseError(
            f"topology {name!r} of {text} is not registered in {operator.home.place}: start it with `sparkbolt run`"
        )
    hint = "" if "did you mean" in said else _hint(text, operator).replace(": ", "; ", 1)
    raise WrongUseError(f"{said}{hint}")


def checkpoint_of(text: str) -> str:
    """The directory or URL of a checkpoint.

    Raises:
        WrongUseError: the text names neither a checkpoint nor a topology that has one.
    """
    operator = operator_of(None)
    if is_path(text):
        return _existing(text, operator)
    if is_code(text):
        entry = entry_of(operator, text)
    else:
        try:
            entry = operator.home.find(text)
        except (UnknownTopologyError, HomeError):
            return _existing(text, operator)
        except AmbiguousTopologyError as error:
            raise WrongUseError(str(error)) from None
    place = entry["checkpoint"] or entry["directory"]
    path = None if place is None else local_directory(place)
    if place is None or (path is not None and not os.path.isdir(path)):
        kept = "has no checkpoint any more" if entry["checkpoint"] else "was started without --checkpoint"
        raise WrongUseError(f"topology {entry['name']!r} {kept}, so this command has nothing to read")
    return place


def letters_of(text: str) -> str:
    """Where dead letters are, as ``control.letters.stores.open_store`` takes it: a place, or that of a topology.

    Raises:
        WrongUseError: the text names no topology, or one whose spouts put their dead letters into several places.
    """
    if text.startswith((KAFKA, FILE)) or (not is_code(text) and (is_path(text) or os.path.isfile(text))):
        return text
    checkpoint = checkpoint_of(text)
    place, *others = Description.read(open_files(checkpoint)).letter_places(checkpoint)
    if others:
        raise WrongUseError(f"the dead letters of {text} are in several places: write {' or '.join([place, *others])}")
    return place


def is_path(text: str) -> bool:
    """Whether a text names a directory, a file or a URL, and no topology."""
    return "/" in text or text.startswith(("~", "."))


def _existing(text: str, operator: Operator) -> str:
    """A checkpoint's place, checked if it is on this machine."""
    path = local_directory(os.path.expanduser(text))
    if path is None:
        return text
    if not os.path.isdir(path):
        what = f"there is no directory {path}" if is_path(text) else f"there is no topology or checkpoint {text!r}"
        raise WrongUseError(
            f"{what}: expected the directory of --checkpoint, or the name of a topology{_hint(text, operator)}"
        )
    return path


def _code_in(command: Sequence[str]) -> str | None:
    """The code that a command line of ``sparkbolt run`` names; None if it names none."""
    from sparkbolt.faces.cli.parser import parser

    with suppress(SystemExit), redirect_stderr(io.StringIO()):
        reference: str = getattr(parser().parse_args(command[1:]), "topology", "")
        return reference if is_code(reference) else None
    return None


def _hint(text: str, operator: Operator) -> str:
    """``": did you mean 'x'?"`` with the nearest name of a topology, checkpoint or file; empty if none is near."""
    names: list[str] = []
    with suppress(HomeError):
        names = [name for entry in operator.topologies() for name in (entry["name"], entry["id"])]
    return did_you_mean(text, [*names, *_nearby(text)])


def _nearby(text: str) -> Iterator[str]:
    """The checkpoints and Python files in the folder of a path, as one would write them."""
    folder = os.path.dirname(text)
    with suppress(OSError):
        for path in sorted(Path(folder or ".").expanduser().iterdir()):
            if path.suffix == ".py" or Path(path, FORMAT_FILE).is_file():
                yield os.path.join(folder, path.name)
