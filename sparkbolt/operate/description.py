"""Description: what a checkpoint tells of a topology's shape, for those who look when it has ended.

Which question it answers: which components were there, and where are their dead letters?
Rule: it is the file ``description`` of the checkpoint, written at each start; a checkpoint of an earlier version has
none, and then the files ``topology`` and ``tasks`` tell less.

Read before: ``describe``, ``core.driver.ledger.reader``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkbolt.core.base.files import Files
from sparkbolt.core.model.dead_letters import CHECKPOINT
from sparkbolt.core.model.lane import Lane
from sparkbolt.core.model.topology import ComponentSpec
from sparkbolt.operate.describe import components_of
from sparkbolt.operate.documents import ComponentDocument, StreamSubscription

DESCRIPTION_FILE = "description"
FORMAT = 1
_GROUPING = re.compile(r"(\w+)(?:\((.*)\))?")


@dataclass(frozen=True)
class Description:
    """The shape of a topology."""

    name: str = ""
    components: list[ComponentDocument] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)
    letters: Mapping[str, str] = field(default_factory=dict)
    """By spout: where its dead letters are, as ``sparkbolt dlq`` takes it; ``checkpoint:`` for the folder there."""
    brokers: Mapping[str, str] = field(default_factory=dict)
    """By spout that reads from Kafka: its brokers."""
    letters_directory: str | None = None
    """Where ``checkpoint:`` is, if it is not in the checkpoint."""

    def dumps(self) -> bytes:
        """The content of the file ``description``."""
        return json.dumps({"v": FORMAT, **vars(self)}).encode() + b"\n"

    @classmethod
    def of(cls, lane: Lane, settings: Mapping[str, Any], letters_directory: str | None = None) -> Description:
        """The description of a topology that starts."""
        spouts = lane.topology.spouts
        letters = {spec.id: where for spec in spouts if (where := letters_of(spec)) is not None}
        kafka = [spec for spec in spouts if _reads_kafka(spec.component)]
        brokers = {spec.id: found for spec in kafka if (found := _brokers(spec.component)) is not None}
        return cls(lane.topology.name, components_of(lane), dict(settings), letters, brokers, letters_directory)

    @classmethod
    def read(cls, files: Files) -> Description:
        """The description in a checkpoint; an empty one if there is none that can be read."""
        try:
            body = json.loads(files.read(DESCRIPTION_FILE) or b"null")
            if isinstance(body, dict) and body.pop("v", None) == FORMAT:
                known = {name: body[name] for name in cls.__dataclass_fields__ if name in body}
                return cls(**known)
            return cls._of_older(files)
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls()

    @classmethod
    def _of_older(cls, files: Files) -> Description:
        fingerprint = json.loads(files.read("topology") or b"{}").get("fingerprint", {})
        tasks = json.loads(files.read("tasks") or b"{}")
        firsts = {name: first for name, first, _ in tasks.get("owners", ())}
        found = [_component(name, body, firsts.get(name, 0)) for name, body in fingerprint["components"].items()]
        levels: dict[str, int] = {}
        by_name = {one["id"]: one for one in found}
        for one in found:
            one["level"] = _level(one["id"], by_name, levels)
        return cls(
            fingerprint["name"], found, letters={one["id"]: CHECKPOINT for one in found if one["kind"] == "spout"}
        )


def letters_of(spec: ComponentSpec) -> str | None:
    """Where the dead letters of a spout are; None if no store has them."""
    way: Any = spec.dead_letters
    if way == CHECKPOINT:
        return CHECKPOINT
    if isinstance(getattr(way, "path", None), str):
        return f"file:{way.path}"
    topic, brokers = getattr(way, "topic", None), _brokers(way)
    return f"kafka:{brokers}/{topic}" if isinstance(topic, str) and brokers is not None else None


def _reads_kafka(component: object) -> bool:
    """Whether it is a ``KafkaSpout``, which is not imported here: its package is large."""
    return any(kind.__module__ == "sparkbolt.spouts.kafka.spout" for kind in type(component).__mro__)


def _brokers(thing: Any) -> str | None:
    found = getattr(getattr(thing, "settings", None), "brokers", None) or getattr(thing, "brokers", None)
    return found if isinstance(found, str) else None


def _component(name: str, body: Mapping[str, Any], first: int) -> ComponentDocument:
    inputs = []
    for place, grouping in body["subscriptions"].items():
        source, _, stream = place.partition("/")
        match = _GROUPING.match(grouping)
        fields = [one.strip() for one in (match[2] or "").split(",") if one.strip()] if match else []
        word = match[1].upper() if match else "CUSTOM"
        inputs.append(StreamSubscription(component=source, stream=stream, grouping=word, fields=fields))
    return ComponentDocument(
        id=name,
        kind="spout" if "spout" in body["kind"] else "bolt",
        type="",
        parallelism=body["parallelism"],
        level=0,
        fused_with=None,
        stateful=body["kind"] == "stateful bolt",
        streams={stream: list(about["fields"]) for stream, about in body["streams"].items()},
        inputs=inputs,
        first_task=first,
        settings={},
    )


def _level(name: str, components: Mapping[str, ComponentDocument], known: dict[str, int]) -> int:
    if name not in known:
        sources = {one["component"] for one in components[name]["inputs"] if one["component"] in components}
        known[name] = 1 + max(_level(source, components, known) for source in sources) if sources else 0
    return known[name]
