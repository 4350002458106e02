"""Sparkbolt: Apache Storm's model on Spark, every tuple tracked to its end.

The front door: what users import. Importing it needs neither Spark nor Java.
"""

from sparkbolt.core.components import (
    AsyncBolt,
    BadRecord,
    BasicBolt,
    Bolt,
    ColumnBolt,
    PartitionedSpout,
    Range,
    Spout,
    StatefulBolt,
    TopologyContext,
    bolt,
)
from sparkbolt.core.config import Config
from sparkbolt.core.dead_letters import Attempt, DeadLetter, DeadLetterSink, RawMessage
from sparkbolt.core.groupings import Grouping
from sparkbolt.core.retry import RetryPolicy
from sparkbolt.core.topology import Topology, TopologyBuilder
from sparkbolt.core.tuples import Direct, Tuple
from sparkbolt.errors import (
    CheckpointError,
    ConfigError,
    EmitError,
    EngineError,
    FailedException,
    InvalidTopology,
    Reject,
    ReportedFailedException,
    SourceUnavailable,
    SparkboltError,
    StateError,
    Unavailable,
)
from sparkbolt.windows import Count, WindowedBolt

__all__ = [
    "AsyncBolt",
    "Attempt",
    "BadRecord",
    "BasicBolt",
    "Bolt",
    "CheckpointError",
    "ColumnBolt",
    "Config",
    "ConfigError",
    "Count",
    "DeadLetter",
    "DeadLetterSink",
    "Direct",
    "EmitError",
    "EngineError",
    "FailedException",
    "Grouping",
    "InvalidTopology",
    "PartitionedSpout",
    "Range",
    "RawMessage",
    "Reject",
    "ReportedFailedException",
    "RetryPolicy",
    "SourceUnavailable",
    "SparkboltError",
    "Spout",
    "StateError",
    "StatefulBolt",
    "Topology",
    "TopologyBuilder",
    "TopologyContext",
    "Tuple",
    "Unavailable",
    "WindowedBolt",
    "bolt",
]
__version__ = "0.1.0"
