"""The log: the ledger's log entries and snapshots as bytes.

The format is Sparkbolt's own: a head (kind, checksum), then sections, each behind its length. Small values are JSON,
trees are packed columns, and nothing is pickled. Bytes are checked against their checksum before they are used; an
error names the file.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import numpy as np

from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.outage import Health, Outage
from sparkbolt.api.story import Hop
from sparkbolt.base.codec import SPARSE, Coder, decode, encode
from sparkbolt.base.ids import I32, U64, empty_u64
from sparkbolt.base.packing import compress, join_sections, pack_keys, split_sections, unpack_keys
from sparkbolt.driver.ledger.loops import LoopsState
from sparkbolt.driver.ledger.messages import MessagesState
from sparkbolt.driver.ledger.outcomes import Terms
from sparkbolt.driver.ledger.story_store import StoriesState
from sparkbolt.errors import CheckpointError, InvariantError
from sparkbolt.observe.measurements import Flow, FlowCounts, Measurements, flows_from_json, flows_to_json
from sparkbolt.wire.acker import decode_verdicts, encode_verdicts
from sparkbolt.wire.looped_frames import NOTHING_FED_BACK, FedBack
from sparkbolt.wire.plan import MicroBatchPlan
from sparkbolt.wire.verdicts import Feedback

T = TypeVar("T")
_HEAD = struct.Struct("<4sI")
_ENTRY = b"SBLE"
_SNAPSHOT = b"SBLS"


Flows = Annotated[dict[Flow, FlowCounts], Coder(flows_to_json, flows_from_json)]


def _no_trees() -> tuple[U64, U64, I32]:
    return empty_u64(), empty_u64(), np.empty(0, np.int32)


@dataclass
class State:
    """The durable state of a ledger; the fields are as in ``Ledger``."""

    JSON = SPARSE

    life: int = -1
    last_promoted: int = -1
    last_now_ms: int = 0
    metrics: TopologyMetrics = field(default_factory=TopologyMetrics)
    void: tuple[tuple[int, int], ...] = ()
    messages: MessagesState = field(default_factory=MessagesState)
    stories: StoriesState = field(default_factory=StoriesState)
    outbox_acks: tuple[tuple[int, int, int], ...] = ()
    outages: dict[str, Outage] = field(default_factory=dict)
    flows: Flows = field(default_factory=dict)
    marks: list[list[Any]] = field(default_factory=list)
    loops: LoopsState | None = None
    trees: tuple[U64, U64, I32] = field(default_factory=_no_trees, compare=False)
    """(keys, xors, holders) of the open trees: uint64, uint64 and int32[open], keys ascending. Not in the JSON."""


@dataclass
class _Entry:
    """The content of a log entry besides the verdicts."""

    JSON = SPARSE

    life: int
    plan: MicroBatchPlan
    terms: Terms
    partials: int = 0
    metrics: dict[str, ComponentMetrics] = field(default_factory=dict)
    healths: dict[str, Health] = field(default_factory=dict)
    flows: Flows = field(default_factory=dict)
    marks: list[tuple[str, str, str, int, int]] = field(default_factory=list)
    hops: list[Hop] = field(default_factory=list)
    message_ids: dict[int, str] = field(default_factory=dict)
    fed_back: FedBack | None = None


def dump_entry(life: int, plan: MicroBatchPlan, feedback: Feedback, terms: Terms) -> bytes:
    """The log entry of one micro-batch, with the life and the terms of its staging; reports are not stored."""
    entry = _Entry(
        life,
        plan,
        terms,
        feedback.partials,
        dict(sorted(feedback.metrics.items())),
        feedback.healths,
        feedback.measured.flows,
        feedback.marks,
        feedback.hops,
        feedback.message_ids,
        feedback.fed_back if feedback.fed_back.rows else None,
    )
    return _seal(_ENTRY, [_to_bytes(encode(entry)), encode_verdicts(feedback.verdicts)])


def load_entry(data: bytes, name: str) -> tuple[int, MicroBatchPlan, Feedback, Terms]:
    """(life, plan, feedback, terms) of ``dump_entry``.

    Raises:
        CheckpointError: the bytes are damaged; ``name`` is in the message.
    """
    head, verdicts = _unseal(_ENTRY, data, name, 2)
    entry = _decoded(_Entry, head, name)
    feedback = Feedback(
        verdicts=decode_verdicts(verdicts),
        metrics=entry.metrics,
        measured=Measurements(flows=entry.flows),
        partials=entry.partials,
        hops=entry.hops,
        message_ids=entry.message_ids,
        marks=entry.marks,
        healths=entry.healths,
        fed_back=entry.fed_back or NOTHING_FED_BACK,
    )
    return entry.life, entry.plan, feedback, entry.terms


def dump_snapshot(state: State) -> bytes:
    """A ledger's state as bytes; XOR values raw, because they do not compress."""
    keys, xors, holders = state.trees
    columns = [
        pack_keys(keys),
        xors.astype("<u8", copy=False).tobytes(),
        compress(holders.astype("<i4", copy=False).tobytes()),
    ]
    return _seal(_SNAPSHOT, [compress(_to_bytes(encode(state))), *columns])


def load_snapshot(data: bytes, name: str) -> State:
    """The inverse of ``dump_snapshot``.

    Raises:
        CheckpointError: the bytes are damaged; ``name`` is in the message.
    """
    head, keys, xors, holders = _unseal(_SNAPSHOT, data, name, 4)
    state = _decoded(State, zlib.decompress(head), name)
    state.trees = (
        unpack_keys(keys),
        np.frombuffer(xors, dtype="<u8").astype(np.uint64),
        np.frombuffer(zlib.decompress(holders), dtype="<i4").astype(np.int32),
    )
    return state


def _decoded(kind: type[T], data: bytes, name: str) -> T:
    try:
        return decode(kind, json.loads(data))
    except ValueError as error:
        raise CheckpointError(f"{name} is damaged: {error}") from error


def _seal(kind: bytes, sections: list[bytes]) -> bytes:
    payload = join_sections(sections)
    return _HEAD.pack(kind, zlib.crc32(payload)) + payload


def _unseal(kind: bytes, data: bytes, name: str, count: int) -> list[bytes]:
    if len(data) < _HEAD.size or data[:4] != kind:
        raise CheckpointError(f"{name} is damaged: it does not begin as one of the ledger ({len(data)} bytes)")
    _, checksum = _HEAD.unpack_from(data)
    payload = memoryview(data)[_HEAD.size :]
    if zlib.crc32(payload) != checksum:
        raise CheckpointError(f"{name} is damaged: its checksum is {zlib.crc32(payload):08x}, expected {checksum:08x}")
    try:
        sections = split_sections(payload)
    except InvariantError as error:
        raise CheckpointError(f"{name} is damaged: {error}") from error
    if len(sections) != count:
        raise CheckpointError(f"{name} is damaged: it has {len(sections)} sections, expected {count}")
    return sections


def _to_bytes(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
