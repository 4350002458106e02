"""The three topologies of the contract. Their parts are independent, and Spark starts once for all parts of one."""

from __future__ import annotations

from sparkbolt import Config, Topology, TopologyBuilder
from tests.contract.keeping import TIMEOUT_SECS, kept, timed
from tests.contract.lettered import lettered
from tests.contract.poisoned import poisoned
from tests.contract.retrying import retrying
from tests.contract.starting import starting, stops, untracked
from tests.contract.telling import told
from tests.contract.tracking import trees
from tests.contract.windowed import storms_example, windows_kept


def tracked(directory: str) -> Topology:
    """Trees that end at once or time out: in phase 0 trees that a bolt starts, in phase 1 everything."""
    config = Config(message_timeout_secs=TIMEOUT_SECS, max_error_report_per_interval=1000, compact_every=2)
    builder = TopologyBuilder("tracked", config)
    trees(builder, directory)
    timed(builder, directory)
    starting(builder, directory)
    told(builder, directory, limits=[0])
    lettered(builder, directory)
    return builder.build()


def restarted(directory: str) -> Topology:
    """Parts that go on over restarts, in four phases; no tree times out."""
    config = Config(message_timeout_secs=3600, frame_bytes_max=1024, tuple_bytes_max=1 << 20)
    builder = TopologyBuilder("restarted", config)
    windows_kept(builder, directory)
    storms_example(builder, directory)
    kept(builder, directory)
    poisoned(builder, directory)
    retrying(builder, directory)
    return builder.build()


def without_ackers(directory: str) -> Topology:
    """A topology that tracks nothing, and that an exception stops in phase 1."""
    builder = TopologyBuilder("without-ackers", Config(acker_tasks=0))
    untracked(builder, directory)
    stops(builder, directory)
    return builder.build()
