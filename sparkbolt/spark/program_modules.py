"""Program modules: workers of Spark that run several topologies import a module again if its file has changed.

Spark keeps Python workers for the next topology of a session, with all modules that they have imported. The driver
looks at the files of the program's modules at each start; a worker compares them with those of the start before.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, MutableMapping
from types import ModuleType

from sparkbolt.spark.code_shipping import SPARK_S_OWN, installed_places, is_installed
from sparkbolt.spark.job_bundle import ModuleFile

_OURS = SPARK_S_OWN | {"sparkbolt", "__main__", "__mp_main__"}


_at_start: dict[str, ModuleFile] = {}
"""In the driver: the modules of the program at the newest start, by name."""
_imported: dict[str, ModuleFile] = {}
"""In a worker: the newest files of the program's modules, by name."""


def look() -> None:
    """Driver: note the files of the modules that the program has loaded; called at each start of a topology."""
    _at_start.clear()
    _at_start.update(files_of_modules(sys.modules))


def at_start() -> dict[str, ModuleFile]:
    """Driver: the files that ``look`` has noted, by module."""
    return dict(_at_start)


def files_of_modules(modules: Mapping[str, ModuleType | None]) -> dict[str, ModuleFile]:
    """The files of all modules that are neither installed, nor of Spark or Sparkbolt, by module."""
    installed, found = installed_places(), {}
    for name, module in list(modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in _OURS or not isinstance(file, str):
            continue
        path = os.path.abspath(file)
        try:
            status = os.stat(path)
        except OSError:  # in an archive, or gone
            continue
        if not is_installed(path, installed):
            package = os.path.dirname(path) if os.path.basename(path) == "__init__.py" else os.path.splitext(path)[0]
            root = package
            for _ in name.split("."):
                root = os.path.dirname(root)
            found[name] = ModuleFile(path, status.st_mtime_ns, status.st_size, root)
    return found


def renew(
    files: Mapping[str, ModuleFile],
    *,
    is_local: bool,
    modules: MutableMapping[str, ModuleType] = sys.modules,
    known: dict[str, ModuleFile] = _imported,
) -> list[str]:
    """Worker: forget the program's modules if the file of any of them has changed since an earlier start.

    All of them are imported again, since they may have imported names from each other.

    Args:
        files: the files at the start of the topology that runs now.
        is_local: whether this process has the driver's files.
        modules: the loaded modules.
        known: the files at the starts before, by module; it is updated.

    Returns:
        The modules that are forgotten.
    """
    changed = [name for name, file in files.items() if name in known and _is_other(known[name], file)]
    forgotten: list[str] = []
    if changed:
        tops = {name.partition(".")[0] for name in files}
        forgotten = [name for name in modules if name.partition(".")[0] in tops]
        for name in forgotten:
            del modules[name]
        if is_local:  # another program's module of the same name may be found first
            roots = dict.fromkeys(files[name].root for name in changed)
            sys.path[:] = [*roots, *(entry for entry in sys.path if entry not in roots)]
        importlib.invalidate_caches()
    known.update({name: file for name, file in files.items() if name not in known or name in changed})
    return forgotten


def _is_other(before: ModuleFile, now: ModuleFile) -> bool:
    """Whether a file is another one, or newer; an older one belongs to a topology that was started before."""
    return before.path != now.path or (before != now and before.written_ns <= now.written_ns)
