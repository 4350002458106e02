"""The commands that follow from ``VERBS``.

A command prints the topology's answer; its exit code is 0 for accepted and 1 for refused. ``kill --wait`` waits for the
end: 0 if nothing was left, 4 if something is left for replay.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sparkbolt.control.documents import EventDocument, TopologyEntry, TopologyState
from sparkbolt.control.home import process_of
from sparkbolt.control.operator import Operator
from sparkbolt.control.processes import gone
from sparkbolt.control.verbs import Verb
from sparkbolt.faces.cli.operate.operator_access import by, operator_of, told
from sparkbolt.faces.cli.operate.overview import runs
from sparkbolt.faces.cli.program import EXIT_FAILED, EXIT_FINISHED, EXIT_GIVEN_UP, EXIT_TIME_OVER, UNDER_WAY
from sparkbolt.faces.cli.resolver import entry_of
from sparkbolt.faces.cli.texts import plain

POLL_SECS = 0.3
END_SECS = 30.0
"""The time to wait for the end of a topology after the time of its open trees."""


def change(verb: Verb, topology: str, *, home: str | None = None, **arguments: Any) -> int:
    """Do what a verb says; one that ends the topology waits for that if its time is given.

    Args:
        verb: the verb.
        topology: its name or id, as list shows it; or its checkpoint; or its code, such as word_count.py.
        home: the directory in which topologies are registered (default: SPARKBOLT_HOME, or ~/.local/state/sparkbolt).
        arguments: of the verb.
    """
    operator = operator_of(home)
    entry = entry_of(operator, topology)
    known = _events(operator, entry["id"], verb)
    answer = operator.change(entry["id"], verb.name, by=by(), **arguments)
    code = told(answer)
    if verb.told_by and not answer["done"] and not answer["refused"]:
        return await_event(operator, entry["id"], verb, len(known))
    wait_secs = arguments.get("wait_secs")
    if answer["refused"] or not verb.ends or wait_secs is None:
        return code
    limit_secs = wait_secs + END_SECS
    print(f"waiting until {plain(entry['name'])} has ended, for {limit_secs:g} s at most", flush=True)
    return await_end(operator, entry["id"], limit_secs)


def _events(operator: Operator, topology: str, verb: Verb) -> list[EventDocument]:
    """The events that tell how a verb went, the newest last."""
    if not verb.told_by:
        return []
    return [event for event in operator.document(topology)["events"] if event["kind"] in verb.told_by]


def await_event(operator: Operator, topology: str, verb: Verb, known: int) -> int:
    """Wait until a topology tells how a verb went, print it, and return the exit code."""
    while True:
        events = _events(operator, topology, verb)
        if len(events) > known:
            is_well = events[-1]["kind"] == verb.told_by[0]
            print(plain(f"{events[-1]['kind']} {events[-1]['text']}"))
            return EXIT_FINISHED if is_well else EXIT_FAILED
        if not runs(operator.find(topology)):
            print("the topology has ended meanwhile: `sparkbolt checkpoint copy` copies its checkpoint")
            return EXIT_FAILED
        time.sleep(POLL_SECS)


def await_end(
    operator: Operator,
    topology: str,
    limit_secs: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Wait until a topology has ended, print how, and return the exit code of ``kill --wait``."""
    until = clock() + limit_secs
    while True:
        entry = operator.find(topology)
        if not runs(entry) and (not _is_leaving(entry) or clock() >= until):
            text, code = _end_of(entry)
            print(plain(text))
            return code
        if clock() >= until:
            print(
                f"{plain(entry['name'])} has not ended after {limit_secs:.0f} s: `sparkbolt list` shows its state, "
                f"and `kill {entry['pid']}` ends its process"
            )
            return EXIT_TIME_OVER
        sleep(POLL_SECS)


def _is_leaving(entry: TopologyEntry) -> bool:
    """Whether a topology has ended but its command has not, so that the exit code is not known yet."""
    ours = bool(entry["command"]) and entry["exit_code"] is None
    return ours and gone(process_of(entry)) is False


def _end_of(entry: TopologyEntry) -> tuple[str, int]:
    """How a topology has ended, in a sentence, and the exit code for it."""
    name, gist = entry["name"], entry["gist"]
    why = f": {entry['why']}" if entry["why"] else ""
    if entry["state"] in (TopologyState.FAILED, TopologyState.DEAD):
        return f"{name} has ended with an error ({entry['state']}){why}", EXIT_FAILED
    drained = entry["drained"] is not False and not (gist["open_trees"] or gist["retries"])
    if entry["exit_code"] is not None:
        drained = entry["exit_code"] in (EXIT_FINISHED, EXIT_GIVEN_UP)
    if drained:
        return f"{name} has ended, and nothing is left", EXIT_FINISHED
    trees = f"{gist['open_trees']:,} open trees" if gist["open_trees"] else ""
    records = f"{gist['retries']:,} records that failed" if gist["retries"] else ""
    is_under_way = entry["drained"] is False and not trees
    parts = [part for part in (trees, records, UNDER_WAY if is_under_way else "") if part] or [UNDER_WAY]
    left = f"{' and '.join(parts)} {'is' if parts == [UNDER_WAY] else 'are'}"
    then = "left for replay" if entry["checkpoint"] is not None else "lost, because it has no checkpoint"
    return f"{name} has ended, and {left} {then}", EXIT_TIME_OVER
