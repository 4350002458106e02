"""The log: the ledger's log entries and snapshots as bytes.

Rule 1: the format is Sparkbolt's own: a head (kind, checksum), then sections, each behind its length. Small
values are JSON, trees are packed columns. It never contains a pickle. Causes and other enums are stored as their texts.
Rule 2: bytes that are read are checked against their checksum before they are used; an error names the file.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparkbolt.api.causes import Cause, MessageOutcome
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.outage import Health, Outage
from sparkbolt.api.reports import Fail, FailedTree
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.api.story import Hop, Story, TreeNotes
from sparkbolt.api.tree_life import TreeState
from sparkbolt.base.ids import I32, U64, empty_u64
from sparkbolt.base.packing import compress, join_sections, pack_keys, split_sections, unpack_keys
from sparkbolt.driver.ledger.message_log import Live, LogState
from sparkbolt.driver.ledger.messages import MessagesState
from sparkbolt.driver.ledger.outages import outages_from_json
from sparkbolt.driver.ledger.outcomes import Terms
from sparkbolt.driver.ledger.retry_schedule import Retry
from sparkbolt.driver.ledger.story_store import StoriesState
from sparkbolt.errors import CheckpointError, InvariantError
from sparkbolt.observe.measurements import Flow, FlowCounts, flows_from_json, flows_to_json
from sparkbolt.wire.acker import decode_verdicts, encode_verdicts
from sparkbolt.wire.attempts import MessageAttempts
from sparkbolt.wire.plan import Entry, MicroBatchPlan, outbox_acks_from_json, outbox_acks_to_json
from sparkbolt.wire.verdicts import Feedback

_HEAD = struct.Struct("<4sI")
_ENTRY = b"SBLE"
_SNAPSHOT = b"SBLS"


@dataclass
class State:
    """The durable state of a ledger; the fields are as in ``Ledger``."""

    life: int = -1
    last_promoted: int = -1
    last_now_ms: int = 0
    metrics: TopologyMetrics = field(default_factory=TopologyMetrics)
    void: tuple[tuple[int, int], ...] = ()
    messages: MessagesState = field(default_factory=MessagesState)
    stories: StoriesState = field(default_factory=StoriesState)
    trees: tuple[U64, U64, I32] = field(default_factory=lambda: (empty_u64(), empty_u64(), np.empty(0, np.int32)))
    """(keys, xors, holders) of the open trees: uint64, uint64 and int32[open], keys ascending."""
    outbox_acks: tuple[tuple[int, int, int], ...] = ()
    outages: dict[str, Outage] = field(default_factory=dict)
    flows: dict[Flow, FlowCounts] = field(default_factory=dict)
    marks: list[list[Any]] = field(default_factory=list)


def dump_entry(life: int, plan: MicroBatchPlan, feedback: Feedback, terms: Terms) -> bytes:
    """The log entry of one micro-batch, with the life and the terms of its staging; reports are not stored."""
    body = {
        "life": life,
        "plan": plan.to_json(),
        "metrics": _metrics_to_json(feedback.metrics),
        "partials": feedback.partials,
        "policies": {name: policy.to_json() for name, policy in terms.policies.items() if policy is not None},
        "lettered": sorted(terms.lettered),
        "patience": terms.patience_ms,
        "healths": {name: list(health) for name, health in feedback.healths.items()},
        "flows": flows_to_json(feedback.measured.flows),
        "marks": feedback.marks,
    }
    if feedback.hops or feedback.message_ids:
        body["told"] = [[hop.to_json() for hop in feedback.hops], list(feedback.message_ids.items())]
    return _seal(_ENTRY, [_to_bytes(body), encode_verdicts(feedback.verdicts)])


def load_entry(data: bytes, name: str) -> tuple[int, MicroBatchPlan, Feedback, Terms]:
    """(life, plan, feedback, terms) of ``dump_entry``.

    Raises:
        CheckpointError: the bytes are damaged; ``name`` is in the message.
    """
    head, verdicts = _unseal(_ENTRY, data, name, 2)
    body = json.loads(head)
    metrics = _metrics_from_json(body["metrics"])
    feedback = Feedback(verdicts=decode_verdicts(verdicts), metrics=metrics, partials=body["partials"])
    hops, message_ids = body.get("told", ([], []))
    feedback.hops = [Hop.from_json(hop) for hop in hops]
    feedback.message_ids = dict(message_ids)
    policies = {component: RetryPolicy.from_json(policy) for component, policy in body["policies"].items()}
    feedback.measured.flows = flows_from_json(body["flows"])
    feedback.marks = [(bolt, component, stream, *mark) for bolt, component, stream, *mark in body["marks"]]
    feedback.healths = {name: Health(*health) for name, health in body["healths"].items()}
    terms = Terms(policies, frozenset(body["lettered"]), body["patience"])
    return body["life"], MicroBatchPlan.from_json(body["plan"]), feedback, terms


def dump_snapshot(state: State) -> bytes:
    """A ledger's state as bytes; XOR values raw, because they do not compress."""
    messages = state.messages
    keys, xors, holders = state.trees
    body = {
        "life": state.life,
        "last_promoted": state.last_promoted,
        "last_now_ms": state.last_now_ms,
        "metrics": {**vars(state.metrics), "components": _metrics_to_json(state.metrics.components)},
        "void": state.void,
        "next_sequence": list(messages.next_sequence.items()),
        "next_letter": list(messages.next_letter.items()),
        "histories": [[*key, attempts.to_json()] for key, attempts in messages.attempts],
        "live": [[live.entry.to_json(), live.micro_batch_id, live.born_ms, live.unfinished] for live in messages.live],
        "sources": [_log_to_json(of) for of in messages.logs],
        "set_aside": [_failed_to_json(tree) for tree in messages.set_aside],
        "told": [[key, notes.message_id, _hops_to_json(notes.hops)] for key, notes in state.stories.notes.items()],
        "failed": [_failed_to_json(tree) for tree in state.stories.failed],
        "acked": [{**vars(story), "hops": _hops_to_json(story.hops)} for story in state.stories.acked],
        "settled": outbox_acks_to_json(state.outbox_acks),
        "outages": {name: known.to_json() for name, known in state.outages.items()},
        "flows": flows_to_json(state.flows),
        "marks": state.marks,
    }
    columns = [
        pack_keys(keys),
        xors.astype("<u8", copy=False).tobytes(),
        compress(holders.astype("<i4", copy=False).tobytes()),
    ]
    return _seal(_SNAPSHOT, [compress(_to_bytes(body)), *columns])


def load_snapshot(data: bytes, name: str) -> State:
    """The inverse of ``dump_snapshot``.

    Raises:
        CheckpointError: the bytes are damaged; ``name`` is in the message.
    """
    head, keys, xors, holders = _unseal(_SNAPSHOT, data, name, 4)
    body = json.loads(zlib.decompress(head))
    metrics = TopologyMetrics(**{**body["metrics"], "components": _metrics_from_json(body["metrics"]["components"])})
    return State(
        life=body["life"],
        last_promoted=body["last_promoted"],
        last_now_ms=body["last_now_ms"],
        metrics=metrics,
        void=tuple((task, sequence) for task, sequence in body["void"]),
        messages=MessagesState(
            logs=[_log_from_json(of) for of in body["sources"]],
            next_sequence=dict(body["next_sequence"]),
            next_letter=dict(body["next_letter"]),
            attempts=[((*key,), MessageAttempts.from_json(attempts)) for *key, attempts in body["histories"]],
            live=[Live(Entry.from_json(entry), *rest) for entry, *rest in body["live"]],
            set_aside=[_failed_from_json(tree) for tree in body["set_aside"]],
        ),
        stories=StoriesState(
            notes={key: TreeNotes(list(_hops_from_json(hops)), message_id) for key, message_id, hops in body["told"]},
            failed=[_failed_from_json(tree) for tree in body["failed"]],
            acked=[_story_from_json(story) for story in body["acked"]],
        ),
        trees=(
            unpack_keys(keys),
            np.frombuffer(xors, dtype="<u8").astype(np.uint64),
            np.frombuffer(zlib.decompress(holders), dtype="<i4").astype(np.int32),
        ),
        outbox_acks=outbox_acks_from_json(body["settled"]),
        outages=outages_from_json(body["outages"]),
        flows=flows_from_json(body["flows"]),
        marks=body["marks"],
    )


def _log_to_json(of: LogState) -> list[Any]:
    retries = [
        [retry.task, retry.position, retry.attempt, retry.end, retry.due_ms, retry.letter] for retry in of.retries
    ]
    return [of.component, of.source, of.planned, of.finished, of.away, retries]


def _log_from_json(body: list[Any]) -> LogState:
    component, source, planned, finished, away, retries = body
    waiting = [Retry(task, source, *rest) for task, *rest in retries]
    return LogState(component, source, planned, finished, away, waiting)


def _failed_to_json(tree: FailedTree) -> dict[str, Any]:
    return {**vars(tree), "fail": vars(tree.fail), "hops": _hops_to_json(tree.hops)}


def _failed_from_json(body: Mapping[str, Any]) -> FailedTree:
    fail = Fail(**{**body["fail"], "cause": Cause.of(body["fail"]["cause"])})
    outcome = MessageOutcome.of(body["outcome"])
    return FailedTree(**{**body, "fail": fail, "outcome": outcome, "hops": _hops_from_json(body["hops"])})


def _story_from_json(body: Mapping[str, Any]) -> Story:
    """The story of a tree that was acked: it has no cause and no outcome."""
    return Story(**{**body, "state": TreeState.of(body["state"]), "hops": _hops_from_json(body["hops"])})


def _hops_to_json(hops: Iterable[Hop]) -> list[list[Any]]:
    return [hop.to_json() for hop in hops]


def _hops_from_json(body: Iterable[list[Any]]) -> tuple[Hop, ...]:
    return tuple(map(Hop.from_json, body))


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


def _metrics_to_json(metrics: Mapping[str, ComponentMetrics]) -> dict[str, dict[str, Any]]:
    """Counters sorted by component, without zeros; a missing counter is zero."""
    return {
        component: {name: count for name, count in vars(counts).items() if count}
        for component, counts in sorted(metrics.items())
    }


def _metrics_from_json(body: Mapping[str, Mapping[str, Any]]) -> dict[str, ComponentMetrics]:
    return {component: ComponentMetrics(**counts) for component, counts in body.items()}
