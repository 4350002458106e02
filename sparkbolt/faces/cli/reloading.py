"""Reloading: ``sparkbolt run --reload`` loads the code again when one of its files has changed.

Rule 1: the topology that runs is stopped only after the changed code was imported, built, and accepted by its
checkpoint. Until then nothing of the running code changes in this process.
Rule 2: the files are those of the modules that the code has imported, without installed ones. After code that could not
be loaded, every other module beside them counts too, since the mistake may be in a module that was not imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from sparkbolt.api.topology import Topology
from sparkbolt.errors import SparkboltError, WrongUseError
from sparkbolt.faces.cli.check import start_with
from sparkbolt.faces.cli.resolver import topology_of

LOOK_SECS = 0.1
"""How often the files are looked at."""
Stamps = dict[str, tuple[int, int]]
"""By path: when the file was written, in nanoseconds since the epoch, and its size."""
GOES_ON = "the topology goes on with the code that it has"
log = logging.getLogger("sparkbolt")


class Reloader:
    """Loads the topology of a run again when its code has changed."""

    def __init__(self, reference: str, checkpoint: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Load nothing yet; modules that are loaded by now are not reloaded.

        Args:
            reference: the code, as on the command line.
            checkpoint: the directory of the checkpoint.
            clock: returns monotonic seconds.
        """
        self._reference, self._checkpoint, self._clock = reference, checkpoint, clock
        self._others = frozenset(sys.modules)
        self._stamps: Stamps = {}
        self._seen: Stamps = {}
        """The files at the last look; code is loaded when they stay the same from one look to the next."""
        self._look_s = 0.0

    def load(self) -> Topology:
        """Load the topology for the first time; the errors are those of ``topology_of``."""
        topology = topology_of(self._reference)
        self._stamps = self._seen = _stamps_of(self._files())
        return topology

    def changed(self, running: Topology) -> Topology | None:
        """The topology of changed code; None if nothing has changed, or the running one must go on.

        Args:
            running: the topology that runs.
        """
        now_s = self._clock()
        if now_s - self._look_s < LOOK_SECS:
            return None
        self._look_s = now_s
        seen, self._seen = self._seen, _stamps_of({*self._stamps, *self._files()})
        if self._seen == self._stamps or self._seen != seen:  # an editor may still be writing
            return None
        return self._loaded(running)

    def _loaded(self, running: Topology) -> Topology | None:
        before = {name: module for name, module in sys.modules.items() if name not in self._others}
        own = self._modules()
        changed = sorted(path for path, stamp in self._seen.items() if self._stamps.get(path) != stamp)
        name = os.path.basename(changed[0]) if changed else self._reference
        for path in changed:
            with suppress(OSError, NotImplementedError):  # the time in a compiled file has whole seconds
                os.remove(importlib.util.cache_from_source(path))
        _forget(own)
        try:
            topology = topology_of(self._reference)
            self._check(topology, running)
        except (Exception, SystemExit) as error:  # noqa: BLE001  user code may raise anything
            watched = {*self._seen, *self._files(), *_beside(self._seen)}
            _forget(name for name in sys.modules if name not in self._others)
            sys.modules.update(before)
            self._stamps = self._seen = _stamps_of(watched)
            text = str(error) if isinstance(error, SparkboltError) else f"{type(error).__name__}: {error}"
            log.error("%s has changed, but %s: %s", name, GOES_ON, text)
            return None
        self._stamps = self._seen = _stamps_of(self._files())
        log.warning("%s has changed: topology %r begins again from its checkpoint", name, running.name)
        return topology

    def _check(self, topology: Topology, running: Topology) -> None:
        """Check that the topology may go on with the checkpoint, without any decision.

        Raises:
            WrongUseError: it may not.
        """
        if topology.name != running.name:
            raise WrongUseError(f"it is topology {topology.name!r} now, and {running.name!r} runs")
        start = start_with(topology, self._checkpoint, os.cpu_count() or 1)
        if start.is_refused or any(step.needs_decision for step in start.steps):
            end = "" if start.is_refused else "\nstop it, and start it with --apply"
            raise WrongUseError("\n".join(start.lines()) + end)

    def _modules(self) -> dict[str, str]:
        """By name: the files of the modules that the code has imported."""
        from sparkbolt.spark.program_modules import files_of_modules

        loaded: dict[str, ModuleType | None] = {
            name: module for name, module in sys.modules.items() if name not in self._others
        }
        return {name: file.path for name, file in files_of_modules(loaded).items()}

    def _files(self) -> set[str]:
        return set(self._modules().values())


def _forget(names: Iterable[str]) -> None:
    for name in list(names):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def _stamps_of(paths: set[str]) -> Stamps:
    """The stamps of files; a file that is gone has none."""
    stamps: Stamps = {}
    for path in paths:
        with suppress(OSError):
            status = os.stat(path)
            stamps[path] = status.st_mtime_ns, status.st_size
    return stamps


def _beside(paths: Stamps) -> set[str]:
    return {str(path) for folder in {os.path.dirname(path) for path in paths} for path in Path(folder).glob("*.py")}
