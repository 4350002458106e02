"""Names: the public names of ``sparkbolt``, imported from the modules that define them.

Users import them from ``sparkbolt``, which loads this module when one of them is first used.
"""

from sparkbolt.core.model.causes import Cause, MessageOutcome
from sparkbolt.core.model.committers import Committer
from sparkbolt.core.model.components import (
    AsyncBolt,
    BasicBolt,
    Bolt,
    ColumnBolt,
    Component,
    PartitionedSpout,
    Spout,
    StatefulBolt,
    TopologyContext,
)
from sparkbolt.core.model.config import Config
from sparkbolt.core.model.dead_letters import Attempt, DeadLetter, DeadLetterSink, RawMessage
from sparkbolt.core.model.function_bolts import bolt
from sparkbolt.core.model.groupings import Grouping, GroupingContext
from sparkbolt.core.model.interfaces import (
    BasicCollector,
    BoltCollector,
    ColumnCollector,
    KeyValueState,
    SpoutCollector,
)
from sparkbolt.core.model.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.core.model.progress import Progress
from sparkbolt.core.model.ranges import BadRecord, Range
from sparkbolt.core.model.reports import ErrorReport, Fail, FailedTree, MicroBatchReport, Promotion
from sparkbolt.core.model.retry import RetryPolicy
from sparkbolt.core.model.running import RunningTopology, Telemetry, TelemetrySink
from sparkbolt.core.model.story import Hop, Story
from sparkbolt.core.model.topology import BoltDeclarer, Topology, TopologyBuilder
from sparkbolt.core.model.tree_life import TreeState
from sparkbolt.core.model.tuples import Direct, Tuple
from sparkbolt.errors import (
    CheckpointError,
    ConfigError,
    EmitError,
    EngineError,
    EnoughRead,
    FailedException,
    FencedError,
    InvalidTopology,
    Reject,
    ReportedFailedException,
    SourceUnavailable,
    SparkboltError,
    StateError,
    Unavailable,
)
from sparkbolt.launch import load  # noqa: F401  with it topologies find their engine
from sparkbolt.windows import Count, LateTuple, TupleWindow, WindowCollector, WindowedBolt

__all__: list[str] = [
    "AsyncBolt",
    "Attempt",
    "BadRecord",
    "BasicBolt",
    "BasicCollector",
    "Bolt",
    "BoltCollector",
    "BoltDeclarer",
    "Cause",
    "CheckpointError",
    "ColumnBolt",
    "ColumnCollector",
    "Committer",
    "Component",
    "ComponentMetrics",
    "Config",
    "ConfigError",
    "Count",
    "DeadLetter",
    "DeadLetterSink",
    "Direct",
    "EmitError",
    "EngineError",
    "EnoughRead",
    "ErrorReport",
    "Fail",
    "FailedException",
    "FailedTree",
    "FencedError",
    "Grouping",
    "GroupingContext",
    "Hop",
    "InvalidTopology",
    "KeyValueState",
    "LateTuple",
    "MessageOutcome",
    "MicroBatchReport",
    "PartitionedSpout",
    "Progress",
    "Promotion",
    "Range",
    "RawMessage",
    "Reject",
    "ReportedFailedException",
    "RetryPolicy",
    "RunningTopology",
    "SourceUnavailable",
    "SparkboltError",
    "Spout",
    "SpoutCollector",
    "StateError",
    "StatefulBolt",
    "Story",
    "Telemetry",
    "TelemetrySink",
    "Topology",
    "TopologyBuilder",
    "TopologyContext",
    "TopologyMetrics",
    "TreeState",
    "Tuple",
    "TupleWindow",
    "Unavailable",
    "WindowCollector",
    "WindowedBolt",
    "bolt",
]
