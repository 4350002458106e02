"""Source names: the short name of a source for people, such as ``access.log``; programs get the complete name.

Only a source that is an absolute path has a short name: the end of the path, and of a followed file not its identity
(``connectors.files.file_identity``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

IDENTITY = re.compile(r"#(?:(\d+):)?(\d+)-(\d+)-([0-9a-f]{16})(?:\.(\d+))?\Z")
"""What follows the path in the source of a followed file: ``#BIRTH:INODE-LENGTH-DIGEST.GENERATION``."""


def path_in(source: str) -> str:
    """Return a source without the identity of a followed file.

    >>> path_in("/var/log/a.log#17-5-4fd786f4855f5fa2"), path_in("orders/3")
    ('/var/log/a.log', 'orders/3')
    """
    return IDENTITY.sub("", source)


def short_source(source: str) -> str:
    """Return the short name of a source, as it is if no other is near.

    >>> short_source("/var/log/a.log#17-5-4fd786f4855f5fa2"), short_source("/books/b.txt"), short_source("orders/3")
    ('a.log', 'b.txt', 'orders/3')
    """
    return short_sources([source])[source]


def long_path(source: str | None) -> str | None:
    """Return the path of a source, if its short name leaves a part of the path out.

    >>> long_path("/var/log/a.log#17-5-4fd786f4855f5fa2"), long_path("orders/3"), long_path(None)
    ('/var/log/a.log', None, None)
    """
    path = path_in(source or "")
    return path if path != short_source(path) else None


def short_sources(sources: Iterable[str]) -> dict[str, str]:
    """Return the short name of each of some sources; it has as much of the path as distinguishes it from the others.

    Of several files that were found under one path, the name contains the inode, too.

    >>> names = short_sources(["/a/x.log", "/b/x.log", "/b/y.log", "/b/y.log#17-5-4fd786f4855f5fa2", "orders/3"])
    >>> list(names.values())
    ['a/x.log', 'b/x.log', 'y.log', 'y.log#17', 'orders/3']
    """
    every = dict.fromkeys(sources)
    paths = {source: path_in(source) for source in every}
    same = Counter(paths.values())
    names = dict(zip(same, same, strict=True))
    left = [path for path in same if path.startswith(("/", "file:///"))]
    depth = 0
    while left:
        depth += 1
        ends = {path: "/".join(path.split("/")[-depth:]) for path in left}
        many = Counter(ends.values())
        names.update((path, end) for path, end in ends.items() if end)
        left = [path for path, end in ends.items() if end != path and (not end or many[end] > 1)]
    return {source: names[path] + (_inode(source) if same[path] > 1 else "") for source, path in paths.items()}


def _inode(source: str) -> str:
    found = IDENTITY.search(source)
    return f"#{found[2]}{f'.{found[5]}' if found[5] else ''}" if found is not None else ""


def is_named(source: str, name: str) -> bool:
    """Whether a name that a person typed is a source: its complete name, its short name or any end of its path.

    >>> followed = "/var/log/a.log#17-5-4fd786f4855f5fa2"
    >>> [is_named(followed, name) for name in (followed, "a.log", "./log/a.log", "a.log#17", "b/a.log", "log")]
    [True, True, True, True, False, False]
    """
    path, end = path_in(source), f"/{name.removeprefix('./').lstrip('/')}"
    return any(f"/{one}".endswith(end) for one in (source, path, path + _inode(source)))


def place_text(source: str, position: int, end: int | None = None) -> str:
    """Return the place of a message for people: the short name of its source, and its position.

    >>> place_text("/var/log/a.log#17-5-4fd786f4855f5fa2", 2447657), place_text("orders/3", 7, 9)
    ('a.log@2447657', 'orders/3@7 to 9')
    """
    return f"{short_source(source)}@{position}{f' to {end}' if end is not None else ''}"
