"""Verdicts: how a topology does, in one sentence, for ``list``, ``stats``, the pages and REST.

A ``Verdict`` is the problem of a topology that matters most, or says that it is well. Only ``problems_of`` decides what
is a problem, and in which order: the worst first. A state that somebody requested hides no worse problem: the verdict
then says both.
"""

from __future__ import annotations

from sparkbolt.control.documents import NowDocument, TopologyEntry, TopologyState, Verdict
from sparkbolt.control.lags import lags_text

BAD, WARN, HINT, GOOD = "bad", "warn", "hint", "good"
"""The levels of a verdict: it fails or waits; it needs a look; somebody requested it, or it passes; all is well."""
_WORST_FIRST = (BAD, WARN, HINT, GOOD)
_S = TopologyState


def verdict_of(entry: TopologyEntry, now: NowDocument | None = None) -> Verdict:
    """How a topology does: its worst problem, then its state if that is another one; or that it is well.

    Args:
        entry: its entry; ``verdict`` is not read.
        now: its present state, if it answers.

    >>> from sparkbolt.control.home import entry_with
    >>> verdict_of(entry_with(name="shop", state="active"))
    {'level': 'good', 'text': 'well'}
    >>> verdict_of(entry_with(name="shop", state="inactive", why="deactivated by ann"))["text"]
    'inactive: deactivated by ann'
    """
    problems = problems_of(entry, now)
    if not problems:
        return Verdict(level=GOOD, text="well")
    state = _of_entry(entry)
    texts = (
        [problems[0]["text"]] if state is None or state[1] == problems[0]["text"] else [problems[0]["text"], state[1]]
    )
    return Verdict(level=problems[0]["level"], text="; ".join(texts))


def problems_of(entry: TopologyEntry, now: NowDocument | None = None) -> list[Verdict]:
    """All problems of a topology, the worst first; empty if it is well."""
    state, gist = TopologyState.of(entry["state"]), entry["gist"]
    found: list[tuple[str, str] | None] = [_of_entry(entry)]
    if state.runs and now is not None:
        found += [(BAD, text) for text in now["outages"]]
        found += [(WARN, text) for text in now["hung"]]
        if now["repeats"] and now["micro_batch"]:
            found.append((WARN, f"repeats micro-batch {now['micro_batch']['micro_batch_id']}"))
        found += [(WARN, text) for text in now["full"]]
    if state is _S.ACTIVE and gist["lag_growth"]:
        found.append((WARN, f"falls behind: its lag grew by {lags_text(gist['lag_growth'])} within a minute"))
    if gist["given_up"]:
        messages = "1 message" if gist["given_up"] == 1 else f"{gist['given_up']:,} messages"
        found.append((WARN, f"{messages} given up: see `sparkbolt dlq list {entry['name']}`"))
    known = [Verdict(level=one[0], text=one[1]) for one in found if one is not None]
    return sorted(known, key=lambda one: _WORST_FIRST.index(one["level"]))


def _of_entry(entry: TopologyEntry) -> tuple[str, str] | None:
    return _of_state(TopologyState.of(entry["state"]), entry["why"], entry["gist"]["open_trees"])


def _of_state(state: TopologyState, why: str | None, open_trees: int) -> tuple[str, str] | None:
    """What the state itself says; None if it is no problem."""
    because = f": {why}" if why else ""
    match state:
        case _S.DEAD:
            why = why or "its process ended without a final report"
            return BAD, f"dead: {why}. Start it again with its checkpoint to continue"
        case _S.FAILED:
            return BAD, f"failed{because or ': its log gives the reason'}"
        case _S.ENDED:
            return HINT, f"ended{because}"
        case _S.STARTING:
            return HINT, f"starting{because}"
        case _S.RESTARTING:
            return BAD, f"restarting{because}"
        case _S.INACTIVE:
            return HINT, f"inactive{because}"
        case _S.KILLED | _S.DRAINING:
            trees = "its last open tree finishes" if open_trees == 1 else f"its {open_trees:,} open trees finish"
            return HINT, f"stopping{because}; {trees}" if open_trees else f"stopping{because}"
    return (BAD, why) if why else None
