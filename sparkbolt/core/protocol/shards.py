"""Shards: which acker task hears what of a stage's partials.

Which question it answers: how are the partials of a stage split, so that all that is said of one tree meets?

Read before: ``acker``.
"""

from __future__ import annotations

import numpy as np

from sparkbolt.core.protocol.acker import Partials, only_shard, shard_of


def shards_of(partials: Partials, shards: int) -> dict[int, Partials]:
    """What those of ``shards`` acker tasks are to hear that have anything to hear, in the order of their numbers."""
    if partials.empty:
        return {}
    only = only_shard(partials, shards)
    if only is not None:
        return {only: partials}
    init, ack, held, touched = (
        shard_of(keys, shards)
        for keys in (partials.init_keys, partials.ack_keys, partials.held_keys, partials.touched_keys)
    )
    fails = shard_of(np.array([fail.key for fail in partials.fails], dtype=np.uint64), shards)
    by_shard: dict[int, Partials] = {}
    for shard in np.unique(np.concatenate((init, ack, held, touched, fails))).tolist():
        by_shard[shard] = Partials(
            init_keys=partials.init_keys[init == shard],
            init_xors=partials.init_xors[init == shard],
            ack_keys=partials.ack_keys[ack == shard],
            ack_xors=partials.ack_xors[ack == shard],
            held_keys=partials.held_keys[held == shard],
            held_by=partials.held_by[held == shard],
            touched_keys=partials.touched_keys[touched == shard],
            fails=[fail for fail, of in zip(partials.fails, fails, strict=True) if of == shard],
        )
    return by_shard
