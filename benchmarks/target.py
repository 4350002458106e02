"""What ``micro_batch_target_ms`` costs a topology that keeps up.

At a rate that is a third to a half of what the word count can do, is a tree later with the default target than with
half of it? What the target gives to one that falls behind is in ``words``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.figures import Figure
from benchmarks.latency import DueLog, compared, ours
from benchmarks.runs import Options
from benchmarks.words import DEFAULT_TARGET_MS, warm

RATE = 60_000
"""600,000 words a second."""
SECS = 30


def figures(options: Options) -> Iterator[Figure]:
    """Measure both targets, in turn."""
    warm()
    contenders = {
        f"a target of {target_ms} ms": partial(ours, DueLog(RATE, SECS), target_ms)
        for target_ms in (DEFAULT_TARGET_MS, DEFAULT_TARGET_MS // 2)
    }
    yield from compared("target", contenders, RATE, SECS, options.rounds)
