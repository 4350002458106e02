"""Topology changes: whether a checkpoint of one topology fits another, and what to do if it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BACK = "change it back"


@dataclass(frozen=True)
class Change:
    """A difference that a checkpoint does not allow.

    >>> str(Change("parallelism of 'count' was 2 and is now 4", "set it to 2 again"))
    "parallelism of 'count' was 2 and is now 4: set it to 2 again"
    """

    text: str
    """The difference, in words."""
    mend: str
    """What to do about it."""

    def __str__(self) -> str:
        """Return both as one sentence."""
        return f"{self.text}: {self.mend}"


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Return the differences of two fingerprints; empty if a checkpoint of one fits the other.

    >>> [str(one) for one in changes({"name": "a", "components": {}}, {"name": "b", "components": {}})]
    ["the name was 'a' and is now 'b': call it 'a' again"]
    """
    found = []
    if old["name"] != new["name"]:
        found.append(
            Change(f"the name was {old['name']!r} and is now {new['name']!r}", f"call it {old['name']!r} again")
        )
    before, after = old["components"], new["components"]
    names = _renamed(before, after)
    found += [Change(f"component {old_!r} is now called {new_!r}", f"call it {old_!r} again") for new_, old_ in names]
    after = _with_old_names(after, dict(names))
    found += [Change(f"component {id_!r} is gone", "add it again") for id_ in before if id_ not in after]
    found += [Change(f"component {id_!r} is new", "leave it out") for id_ in after if id_ not in before]
    for id_ in sorted(set(before) & set(after)):
        found += _changes_of(id_, before[id_], after[id_])
    return found


def _renamed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (new id, old id) of each component that is the only one to fit one that is gone."""
    gone, new = ([id_ for id_ in one if id_ not in other] for one, other in ((before, after), (after, before)))
    pairs = [(now, was) for now in new for was in gone if _is_alike(before[was], after[now])]
    nows, weres = [now for now, _ in pairs], [was for _, was in pairs]
    return [(now, was) for now, was in pairs if nows.count(now) == 1 and weres.count(was) == 1]


def _is_alike(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two components differ at most in their inputs, whose ids may have changed, too."""
    return all(before.get(key) == after.get(key) for key in {*before, *after} - {"subscriptions"}) and sorted(
        before["subscriptions"].values()
    ) == sorted(after["subscriptions"].values())


def _with_old_names(components: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the components with the ids that they had before, also where they are subscribed to."""

    def source_and_stream(key: str) -> str:
        source, _, stream = key.rpartition("/")
        return f"{names.get(source, source)}/{stream}"

    return {
        names.get(id_, id_): {
            **one,
            "subscriptions": {source_and_stream(key): grouping for key, grouping in one["subscriptions"].items()},
        }
        for id_, one in components.items()
    }


def _changes_of(id_: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the differences of a component that both topologies have."""
    for key, mend in (("kind", "make it a {} again"), ("parallelism", "set it to {} again")):
        if before[key] != after[key]:
            text = f"{key} of {id_!r} was {before[key]!r} and is now {after[key]!r}"
            yield Change(text, mend.format(before[key]))
    if after.get("starts_trees", False) != before.get("starts_trees", False):
        had = before.get("starts_trees", False)
        text = "started trees of its own and would start none any more" if had else "started no trees and would start"
        yield Change(f"bolt {id_!r} {text}{'' if had else ' trees of its own'}", BACK)
    was, now = (one.get("settings", {}) for one in (before, after))
    for name in was:
        if name in now and was[name] != now[name]:
            yield Change(f"{name} of {id_!r} was {was[name]} and is now {now[name]}", BACK)
    yield from _entry_changes(f"stream {{!r}} of {id_!r}", before["streams"], after["streams"], "declare")
    what = f"subscription {{!r}} of {id_!r}"
    yield from _entry_changes(what, before["subscriptions"], after["subscriptions"], "add")


def differs(directory: str, differences: Sequence[object]) -> str:
    """Return a text that says that a checkpoint does not fit a topology, and how to continue.

    Args:
        directory: the checkpoint.
        differences: a ``Change`` or a sentence each.
    """
    listed = "".join(f"\n  - {difference}" for difference in differences)
    return (
        f"checkpoint {directory} was begun by a topology that differs:{listed}\nGive the topology the shape "
        "and the settings it had, or start it with a new checkpoint directory (which starts from the beginning)"
    )


def _entry_changes(what: str, old: Mapping[str, Any], new: Mapping[str, Any], verb: str) -> Iterator[Change]:
    for name in old:
        if name not in new:
            yield Change(f"{what.format(name)} is gone", f"{verb} it again")
    for name in new:
        if name not in old:
            yield Change(f"{what.format(name)} is new", "leave it out")
    for name in old:
        if name in new and old[name] != new[name]:
            yield Change(f"{what.format(name)} was {old[name]} and is now {new[name]}", BACK)
