"""URLs: the paths of pages and interfaces, made from ids that may contain any character, and read again."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.types import Scope

HEX = "~"
"""The prefix of an id in a URL that is written in hexadecimal digits."""


def part_of_path(text: str) -> str:
    """An id as one part of a path: everything but letters, digits and ``_.-~`` is escaped.

    >>> part_of_path("a b"), part_of_path("50%"), part_of_path("a/b")
    ('a%20b', '50%25', 'a%2Fb')
    """
    return quote(text, safe="")


def path_of(topology: str, *parts: str) -> str:
    """The path of a topology's page; every part is escaped.

    A topology that is known by its checkpoint only has a path or URL as its id: slashes in it become ``~`` and a text
    of letters and digits, which ``id_in`` turns back.

    >>> path_of("word-count-1-1700", "components", "a/b")
    '/topologies/word-count-1-1700/components/a%2Fb'
    >>> path_of("/data/words", "log")
    '/topologies/~2f646174612f776f726473/log'
    """
    first = f"{HEX}{topology.encode().hex()}" if "/" in topology or topology.startswith(HEX) else topology
    return "/".join(["/topologies", *(part_of_path(part) for part in (first, *parts) if part)])


def id_in(text: str) -> str:
    """The id or name of the topology in a part of a path.

    Raises:
        ValueError: it starts with ``~``, and no hexadecimal digits follow.

    >>> id_in("~2f646174612f776f726473"), id_in("words")
    ('/data/words', 'words')
    """
    return bytes.fromhex(text.removeprefix(HEX)).decode() if text.startswith(HEX) else text


def path_in(scope: Scope) -> str:
    """The path of a request as the client sent it, with its escapes: another request with it finds the same page."""
    raw: bytes | None = scope.get("raw_path")
    return raw.decode("latin-1") if raw else quote(scope["path"])


def address_of(request: Request) -> str:
    """The path of a request, and its query."""
    query = request.url.query
    return f"{path_in(request.scope)}?{query}" if query else path_in(request.scope)
