"""Description: the shape of a topology, for operators who look after it has ended.

Each start writes it to the file ``description`` of the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkbolt.api.dead_letters import CHECKPOINT
from sparkbolt.api.outside import UsesOutside
from sparkbolt.api.topology import ComponentSpec, Topology
from sparkbolt.base.file_access import Files
from sparkbolt.control.describe import components_of
from sparkbolt.control.documents import ComponentDocument
from sparkbolt.layout.lane import Lane

DESCRIPTION_FILE = "description"


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
    uses: Mapping[str, str] = field(default_factory=dict)
    """By component: what it uses outside (``UsesOutside``), without secrets."""
    letters_directory: str | None = None
    """Where ``checkpoint:`` is, if it is not in the checkpoint."""

    def dumps(self) -> bytes:
        """The content of the file ``description``."""
        return json.dumps(vars(self)).encode() + b"\n"

    @classmethod
    def of(cls, lane: Lane, settings: Mapping[str, Any], letters_directory: str | None = None) -> Description:
        """The description of a topology that starts."""
        spouts = lane.topology.spouts
        letters = {spec.id: where for spec in spouts if (where := letters_of(spec)) is not None}
        kafka = [spec for spec in spouts if _reads_kafka(spec.component)]
        brokers = {spec.id: found for spec in kafka if (found := _brokers(spec.component)) is not None}
        uses = used_outside(lane.topology)
        return cls(lane.topology.name, components_of(lane), dict(settings), letters, brokers, uses, letters_directory)

    def letter_places(self, directory: str) -> list[str]:
        """Where dead letters are, each place once; ``directory`` is that of the checkpoint."""
        named = dict.fromkeys(self.letters.values()) or {CHECKPOINT: None}
        own = self.letters_directory or directory
        return [own if place == CHECKPOINT else place for place in named]

    @classmethod
    def read(cls, files: Files) -> Description:
        """The description in a checkpoint; an empty one if there is none that can be read."""
        try:
            return cls(**json.loads(files.read(DESCRIPTION_FILE) or b"null"))
        except (ValueError, TypeError):
            return cls()


def used_outside(topology: Topology) -> dict[str, str]:
    """By component: what it uses outside, if it says so."""
    specs = topology.components.items()
    return {name: str(spec.component) for name, spec in specs if isinstance(spec.component, UsesOutside)}


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
    return any(kind.__module__ == "sparkbolt.connectors.kafka.kafka_spout" for kind in type(component).__mro__)


def _brokers(thing: Any) -> str | None:
    found = getattr(getattr(thing, "settings", None), "brokers", None) or getattr(thing, "brokers", None)
    return found if isinstance(found, str) else None
