"""Rules for all text files: white space, marks of unfinished work, and what ties a file to one machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.tidy.repo import Source, Violation

# White space means something in data, so that rule is only for what people write.
WRITTEN = (".py", ".md", ".toml", ".yml", ".yaml", ".sh", ".html", ".css", ".js")

# In pieces, so that this file keeps its own rules.
_MARKS = ("TO" + "DO", "FIX" + "ME", "X" + "XX")
_HOSTS = (
    ("py" + "pi", "org"),
    ("python" + "hosted", "org"),
    ("crates", "io"),
    ("golang", "org"),
    ("npm" + "js", "org"),
    ("npm" + "js", "com"),
    ("repo1", "maven", "org"),
    ("repo", "maven", "apache", "org"),
    ("central", "sonatype", "com"),
    ("deb", "debian", "org"),
    ("archive", "ubuntu", "com"),
    ("anaconda", "org"),
)
MARK = re.compile(rf"\b({'|'.join(_MARKS)})\b")
MACHINE_PATH = re.compile(r"(?<![\w.~$}-])/(?:work|root|home)/\w")
REGISTRY = re.compile(rf"(?<![\w-])({'|'.join(re.escape('.'.join(host)) for host in _HOSTS)})(?![\w-])", re.IGNORECASE)


def is_written(source: Source) -> bool:
    """Is the file source code or prose? Scripts are known by their first line."""
    return source.path.endswith(WRITTEN) or source.text.startswith("#!")


def check_white_space(source: Source) -> Iterator[Violation]:
    """Lines end where their text ends; indentation is spaces; the last line ends too."""
    if not is_written(source) or not source.text:
        return
    for number, line in enumerate(source.lines, 1):
        if line != line.rstrip():
            yield source.violation(number, "white space at the end of the line", "remove it")
        if "\t" in line:
            yield source.violation(number, "a tab", r"indent with spaces; in a string write \t")
    if not source.text.endswith("\n") or source.text.endswith("\n\n"):
        yield source.violation(len(source.lines), "the file does not end with one line feed", "end it with one")


def check_marks(source: Source) -> Iterator[Violation]:
    """Nothing is left for later in the files: work that is known is written down where work is kept."""
    for number, line in enumerate(source.lines, 1):
        if found := MARK.search(line):
            yield source.violation(number, f"{found[0]} in a file", "do it now, or file an issue and remove the mark")


def check_machine_paths(source: Source) -> Iterator[Violation]:
    """No file names a folder of one person's machine."""
    for number, line in enumerate(source.lines, 1):
        if found := MACHINE_PATH.search(line):
            mend = "take the path from an argument, from __file__, or from a temporary directory"
            yield source.violation(number, f"an absolute path of one machine: {line[found.start() :][:40]}", mend)


def check_registries(source: Source) -> Iterator[Violation]:
    """No file names the host of a package registry: where packages come from is each machine's setting."""
    for number, line in enumerate(source.lines, 1):
        if found := REGISTRY.search(line):
            mend = "name the package alone; the client knows its registry"
            yield source.violation(number, f"the host of a package registry: {found[0]}", mend)


TEXT_RULES = (check_white_space, check_marks, check_machine_paths, check_registries)
