"""Feedback: all rows that reach the end of the lane, as one value.

Which question it answers: what does the driver learn of a micro-batch?
Rule: the same rows give the same feedback, whether partials were judged on the executors or are judged here.

Read before: ``acker``, ``stages``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparkbolt.core.model.metrics import ComponentMetrics, unpack
from sparkbolt.core.model.outage import add_healths
from sparkbolt.core.model.story import merged
from sparkbolt.core.protocol.acker import Feedback, Partials, judge, merge
from sparkbolt.core.protocol.frames import (
    FEEDBACK,
    LETTERS,
    PARTIALS,
    READS,
    VERDICTS,
    Moment,
    decode_control,
    kind_of,
    moment_of,
    unwrap,
    wrap,
)
from sparkbolt.core.protocol.verdict_codec import decode_partials, decode_verdicts, encode_verdicts
from sparkbolt.errors import InvariantError


def judge_rows(rows: Iterable[tuple[int, Any]]) -> list[tuple[int, bytes]]:
    """An acker task on an executor: partials become verdicts, everything else passes."""
    partials: list[Partials] = []
    out: list[tuple[int, bytes]] = []
    dest, moment = 0, Moment(-1, 0)
    for to, data in rows:
        if kind_of(data) == PARTIALS:
            dest, moment = to, moment_of(data)
            partials.append(decode_partials(unwrap(data, PARTIALS)))
        else:
            out.append((to, data))
    if partials:
        body = count_pairs(partials).to_bytes(8, "little") + encode_verdicts(judge(partials))
        out.append((dest, wrap(VERDICTS, body, moment)))
    return out


def count_pairs(partials: Iterable[Partials]) -> int:
    """How many (key, xor) pairs the partials hold."""
    return sum(len(part.init_keys) + len(part.ack_keys) for part in partials)


def gather(frames: Iterable[Any]) -> Feedback:
    """Everything that came back from a micro-batch, judged where it was not yet."""
    partials: list[Partials] = []
    verdicts = []
    feedback = Feedback()
    for data in frames:
        kind = kind_of(data)
        if kind == PARTIALS:
            partials.append(decode_partials(unwrap(data, PARTIALS)))
        elif kind == VERDICTS:
            body = unwrap(data, VERDICTS)
            feedback.partials += int.from_bytes(body[:8], "little")
            verdicts.append(decode_verdicts(body[8:]))
        elif kind == FEEDBACK:
            metrics, reports, hops, timers, healths = decode_control(data, FEEDBACK)
            feedback.timers.update(timers)
            add_healths(feedback.healths, healths)
            for component, counts in unpack(metrics).items():
                feedback.metrics.setdefault(component, ComponentMetrics()).add(counts)
            feedback.reports.extend(reports)
            feedback.hops.extend(hops)
        elif kind == READS:
            feedback.reads.append(decode_control(data, READS))
        elif kind == LETTERS:
            feedback.letters.append(bytes(unwrap(data, LETTERS)))
        else:
            raise InvariantError(f"a frame of kind {kind} reached the end of the lane: no level took it")
    if partials:
        feedback.partials += count_pairs(partials)
        verdicts.append(judge(partials))
    feedback.verdicts = merge(verdicts)
    feedback.hops = merged(feedback.hops)
    feedback.reads.sort()
    feedback.letters.sort()
    return feedback
