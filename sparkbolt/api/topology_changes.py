"""Topology changes: whether a checkpoint of one topology fits another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the differences of two fingerprints, one sentence each; empty if a checkpoint of one fits the other.

    >>> changes({"name": "a", "components": {}}, {"name": "b", "components": {}})
    ["the name was 'a' and is now 'b'"]
    """
    sentences = []
    if old["name"] != new["name"]:
        sentences.append(f"the name was {old['name']!r} and is now {new['name']!r}")
    before, after = old["components"], new["components"]
    sentences += [f"component {id_!r} is gone" for id_ in before if id_ not in after]
    sentences += [f"component {id_!r} is new" for id_ in after if id_ not in before]
    for id_ in sorted(set(before) & set(after)):
        for key in ("kind", "parallelism"):
            if before[id_][key] != after[id_][key]:
                sentences.append(f"{key} of {id_!r} was {before[id_][key]!r} and is now {after[id_][key]!r}")
        if after[id_].get("starts_trees", False) != before[id_].get("starts_trees", False):
            said = "started no trees and would start trees of its own"
            if before[id_].get("starts_trees", False):
                said = "started trees of its own and would start none any more"
            sentences.append(f"bolt {id_!r} {said}")
        was, now = (one[id_].get("settings", {}) for one in (before, after))
        sentences += [
            f"{name} of {id_!r} was {was[name]} and is now {now[name]}"
            for name in was
            if name in now and was[name] != now[name]
        ]
        for key, word in (("streams", "stream"), ("subscriptions", "subscription")):
            sentences += _entry_changes(f"{word} {{!r}} of {id_!r}", before[id_][key], after[id_][key])
    return sentences


def differs(directory: str, differences: Sequence[str]) -> str:
    """Return a text that says that a checkpoint does not fit a topology, and how to continue.

    Args:
        directory: the checkpoint.
        differences: one sentence each, as ``changes`` returns them.
    """
    listed = "".join(f"\n  - {difference}" for difference in differences)
    return (
        f"checkpoint {directory} was begun by a topology that differs:{listed}\nGive the topology the shape "
        "and the settings it had, or start it with a new checkpoint directory (which starts from the beginning)"
    )


def _entry_changes(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    sentences = [f"{what.format(name)} is gone" for name in old if name not in new]
    sentences += [f"{what.format(name)} is new" for name in new if name not in old]
    sentences += [
        f"{what.format(name)} was {old[name]} and is now {new[name]}"
        for name in old
        if name in new and old[name] != new[name]
    ]
    return sentences
