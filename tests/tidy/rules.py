"""What a commit must not contain: paths of one machine, hosts of package registries, modules that are too long."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.tidy.repo import Source

MODULE_LINES_MAX = 600
# In pieces, so that this file keeps its own rules.
_HOSTS = (
    ("py" + "pi", "org"),
    ("python" + "hosted", "org"),
    ("crates", "io"),
    ("golang", "org"),
    ("npm" + "js", "(?:org|com)"),
    ("repo1", "maven", "org"),
    ("repo", "maven", "apache", "org"),
    ("central", "sonatype", "com"),
    ("deb", "debian", "org"),
    ("archive", "ubuntu", "com"),
    ("anaconda", "org"),
)
_NAMES = "|".join(r"\.".join(host) for host in _HOSTS)
REGISTRY = re.compile(rf"(?<![\w-])(?:{_NAMES})(?![\w-])", re.IGNORECASE)
MACHINE_PATH = re.compile(r"(?<![\w.~$}-])/(?:work|root|home)/\w")


def check_machine_paths(source: Source) -> Iterator[str]:
    """No file names a folder of one person's machine."""
    for number, line in enumerate(source.lines, 1):
        if match := MACHINE_PATH.search(line):
            path = line[match.start() :][:40]
            yield source.at(number, f"{path}: take the path from an argument, __file__, or a temporary directory")


def check_registries(source: Source) -> Iterator[str]:
    """No file names the host of a package registry: where packages come from is each machine's setting."""
    for number, line in enumerate(source.lines, 1):
        if match := REGISTRY.search(line):
            yield source.at(number, f"{match[0]}: name the package alone; the client knows its registry")


def check_module_size(source: Source) -> Iterator[str]:
    """A module can be read in one go."""
    count = source.text.count("\n")
    if source.path.endswith(".py") and count > MODULE_LINES_MAX:
        yield source.at(MODULE_LINES_MAX + 1, f"{count} lines; a module has {MODULE_LINES_MAX} at most")


RULES = (check_machine_paths, check_registries, check_module_size)
