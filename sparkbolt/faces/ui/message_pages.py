"""Message pages: trees with their way through the topology, and dead letters.

Lists have pages of ``PAGE_ROWS`` rows. A story contains only recorded facts; the page does not guess the rest.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sparkbolt.api.causes import Cause, MessageOutcome, outcome_words
from sparkbolt.base.source_names import long_path, place_text, short_sources
from sparkbolt.faces.ui.drawings import HOPS_MAX, hop_state, tree
from sparkbolt.faces.ui.pages import (
    PAGE_ROWS,
    Tab,
    asking_of,
    chosen,
    no_such,
    now_ms,
    sliced,
    topology_of,
    topology_page,
    wanted_rows,
)
from sparkbolt.faces.ui.record_texts import Pairs, cut_text, pairs_in, pairs_of, pairs_of_story, value_text

TREE_STATES = {"failed": "Failed", "late": "Late", "open": "Open, by holder", "acked": "Traced"}
"""The lists of trees, by the names in URLs."""
OPEN_MAX = 2000
"""How many open trees are grouped by their holders."""
LETTER_FILTERS = ("kind", "cause", "component", "spout")
"""The parameters of a URL that select letters, besides a search."""
KINDS_MAX = 50
"""How many kinds of dead letters a page lists."""
LETTER_LISTS = {"waiting": "Waiting", "all": "All"}
RAW_CHARACTERS_MAX = 20_000
RAW = "raw-value"
"""The field of a form with the original message."""


async def trees_page(request: Request) -> Response:
    """``/topologies/ID/trees``: failed, late, open and traced trees; or those that a search finds."""
    asking, id_ = asking_of(request), topology_of(request)
    document = await asking.document(id_)
    state, search = chosen(request, "state", TREE_STATES), request.query_params.get("q", "")
    holders: list[dict[str, Any]] = []
    if state in ("late", "open"):
        stories = await asking.ask(id_, "stories", state="open", search=search, last=OPEN_MAX)
        if state == "late":
            stories = late_ones(stories, now_ms(request), timeout_ms(document["settings"]))
        else:
            holders = by_holder(stories)
            holder = request.query_params.get("holder", "")
            stories = [one for one in stories if not holder or holder_of(one) == holder]
        stories = sorted(stories, key=lambda one: -(one.get("started_ms") or 0))  # the oldest first, once turned round
    else:
        stories = await asking.ask(id_, "stories", state=state, search=search, last=wanted_rows(request))
    slowest = document["now"]["slowest"]
    return topology_page(
        request,
        "trees.html",
        document,
        Tab.TREES,
        state=state,
        states=TREE_STATES,
        search=search,
        page=sliced(request, stories),
        holders=holders,
        message_of=messages_of(stories),
        then_of=then_of,
        pairs_of=pairs_of_story,
        slowest=slowest,
        slowest_is_told=slowest is not None and await asking.ask(id_, "story", root=slowest["root"]) is not None,
    )


def timeout_ms(settings: Mapping[str, Any]) -> float:
    """After how long a tree times out, in milliseconds."""
    secs = settings.get("message_timeout_secs")
    return 1000 * float(secs) if isinstance(secs, int | float) else 30_000.0


def late_ones(stories: Sequence[dict[str, Any]], now: float, timeout: float) -> list[dict[str, Any]]:
    """The open trees that have used more than half of their time."""
    return [one for one in stories if one.get("started_ms") is not None and now - one["started_ms"] > timeout / 2]


def holder_of(story: Mapping[str, Any]) -> str:
    """The task that holds a tuple of an open tree; if unknown, the last task that had one."""
    hops = story["hops"]
    held = [hop for hop in hops if hop.get("held")]
    if held or hops:
        hop = (held or hops)[-1]
        return f"{hop['component']}[{hop['task']}]"
    return f"{story['component']}[{story['task']}]"


def by_holder(stories: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Open trees by the task that holds them: ``holder``, ``count``, ``oldest_ms``; the most first."""
    found: dict[str, dict[str, Any]] = {}
    for one in stories:
        row = found.setdefault(holder_of(one), {"holder": holder_of(one), "count": 0, "oldest_ms": None})
        row["count"] += 1
        began = one.get("started_ms")
        if began is not None and (row["oldest_ms"] is None or began < row["oldest_ms"]):
            row["oldest_ms"] = began
    return sorted(found.values(), key=lambda row: (-row["count"], row["holder"]))


def messages_of(stories: Sequence[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], str]:
    """``message_of`` for the rows of a list: the names of their sources are all different."""
    names = short_sources(one["source"] for one in stories if one.get("source") is not None)
    return lambda story: message_of({**story, "source": names.get(story.get("source") or "")})


def message_of(story: Mapping[str, Any]) -> str:
    """The identity of a tree's message: the short name of its source and its position, or its message id.

    >>> message_of({"source": "/logs/a.log", "position": 41, "message_id": None})
    'a.log@41'
    """
    if story.get("source") is not None:
        return place_text(story["source"], story["position"])
    return str(story["message_id"]) if story.get("message_id") is not None else "unknown"


def then_of(story: Mapping[str, Any]) -> str:
    """The outcome of a failed tree's message, as words; empty if it is unknown."""
    outcome = story.get("outcome")
    return outcome_words(MessageOutcome.of(outcome)) or "" if outcome else ""


async def tree_page(request: Request) -> Response:
    """``/topologies/ID/trees/ROOT``: one tree, drawn, with each hop and its time."""
    asking, id_ = asking_of(request), topology_of(request)
    document = await asking.document(id_)
    root = request.path_params["root"]
    story = await asking.ask(id_, "story", root=root)
    if story is None:
        raise no_such(f"there is no tree {root!r}: it was acked and not traced, or newer trees have replaced it")
    return topology_page(
        request,
        "tree.html",
        document,
        Tab.TREES,
        story=story,
        drawing=tree(story),
        drawn_max=HOPS_MAX,
        message=message_of(story),
        path=long_path(story.get("source")),
        then=then_of(story),
        hop_state=hop_state,
        pairs_in=pairs_in,
        others=story.get("other_attempts") or [],
    )


# Dead letters.


async def letters_page(request: Request) -> Response:
    """``/topologies/ID/dead-letters``: those that need an action, or all."""
    asking, id_ = asking_of(request), topology_of(request)
    document = await asking.document(id_)
    which, search = chosen(request, "show", LETTER_LISTS), request.query_params.get("q", "")
    filters = {name: request.query_params[name] for name in LETTER_FILTERS if request.query_params.get(name)}
    more = {"replayed": which == "all", "discarded": which == "all"}
    letters = await asking.ask(id_, "letters", search=search, last=wanted_rows(request), **more, **filters)
    others = {name: value for name, value in filters.items() if name != "kind"}
    kinds = await asking.ask(id_, "letter_kinds", search=search, waiting=which == "waiting", **others)
    return topology_page(
        request,
        "letters.html",
        document,
        Tab.LETTERS,
        which=which,
        lists=LETTER_LISTS,
        search=search,
        filters=filters,
        selection={**filters, **({"search": search} if search else {})},
        causes=list(Cause),
        kind=next((one for one in kinds if one["kind"] == filters.get("kind")), None),
        kinds=[] if "kind" in filters else kinds[:KINDS_MAX],
        kinds_count=len(kinds),
        page=sliced(request, letters),
        message_of=messages_of(letters),
        pairs_of=letter_pairs,
        many=PAGE_ROWS,
    )


def letter_pairs(letter: Mapping[str, Any]) -> Pairs:
    """The record of a letter, as a list shows it."""
    if letter["tuples"]:
        return pairs_of(dict(zip(letter["fields"], letter["tuples"][0], strict=False)))
    if letter["raw"]:
        return [("", cut_text(raw_text(letter["raw"].get("value"))))]
    return [("", letter.get("note") or "the letter does not contain its record")]


def raw_text(value: Any) -> str:
    """The undecoded message as text, if it is text."""
    if isinstance(value, Mapping) and len(value) == 1:
        ((_, text),) = value.items()
        try:
            value = base64.b64decode(str(text), validate=True).decode("utf-8", "backslashreplace")
        except ValueError:  # not base64: it is shown unchanged
            value = text
    text = "none" if value is None else str(value)
    return text if len(text) <= RAW_CHARACTERS_MAX else text[:RAW_CHARACTERS_MAX] + CUT


CUT = " ... (truncated)"


async def letter_of(request: Request, id_: str, letter_id: str) -> dict[str, Any]:
    """One letter by its id.

    Raises:
        HTTPException: there is no such letter.
    """
    found: dict[str, Any] | None = await asking_of(request).ask(id_, "letter", letter=letter_id)
    if found is None:
        raise no_such(f"no dead letter has the id {letter_id!r}; its file may have been removed")
    return found


async def letter_page(request: Request) -> Response:
    """``/topologies/ID/dead-letters/LETTER``: its story, its record, and its actions."""
    id_ = topology_of(request)
    document = await asking_of(request).document(id_)
    letter = await letter_of(request, id_, request.path_params["letter"])
    return letter_shown(request, document, letter, {})


def letter_shown(
    request: Request, document: Any, letter: Mapping[str, Any], typed: Mapping[str, str], wrong: Mapping[str, str] = {}
) -> Response:
    """The page of a letter; with the input, and its errors."""
    values = letter["tuples"][0] if len(letter["tuples"]) == 1 else []
    fields = [
        (name, typed.get(f"field-{number}", value_text(value)), wrong.get(f"field-{number}"), isinstance(value, str))
        for number, (name, value) in enumerate(zip(letter["fields"], values, strict=False))
    ]
    raw = letter["raw"]
    return topology_page(
        request,
        "letter.html",
        document,
        Tab.LETTERS,
        letter=letter,
        fields=fields,
        message=message_of(letter),
        path=long_path(letter["source"]),
        wrong=wrong,
        others=letter["tuples"] if len(letter["tuples"]) > 1 else [],
        raw=raw,
        can_edit_raw=raw is not None and not letter["tuples"] and not raw_text(raw.get("value")).endswith(CUT),
        raw_typed=typed.get(RAW),
        raw_value=raw_text(raw.get("value")) if raw else None,
        raw_key=raw_text(raw.get("key")) if raw else None,
        headers=[(name, raw_text(value)) for name, value in raw["headers"]] if raw else [],
        value_text=value_text,
    )
