"""Names: the public names of ``sparkbolt``, imported from the modules that define them.

Users import them from ``sparkbolt``, which loads this module when one of them is first used.
"""

from sparkbolt.api.causes import Cause, MessageOutcome
from sparkbolt.api.committers import Committer
from sparkbolt.api.component_state import ComponentState
from sparkbolt.api.components import (
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
from sparkbolt.api.config import Config
from sparkbolt.api.dead_letters import Attempt, DeadLetter, DeadLetterSink, RawMessage
from sparkbolt.api.durations import days, hours, milliseconds, minutes, seconds
from sparkbolt.api.function_bolts import bolt
from sparkbolt.api.groupings import Grouping, GroupingContext
from sparkbolt.api.interfaces import (
    BasicCollector,
    BoltCollector,
    ColumnCollector,
    KeyValueState,
    SpoutCollector,
)
from sparkbolt.api.metric_handles import CounterMetric, GaugeMetric, HistogramMetric, TaskMetrics, TimerMetric
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.moved_code import moved_from
from sparkbolt.api.progress import Progress
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.api.reports import ErrorReport, Fail, FailedTree, MicroBatchReport, Promotion
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.api.running import RunningTopology, Telemetry, TelemetrySink
from sparkbolt.api.story import Hop, Story
from sparkbolt.api.topology import BoltDeclarer, ComponentHandle, StreamHandle, Topology
from sparkbolt.api.tree_life import TreeState
from sparkbolt.api.tuples import Direct, Tuple
from sparkbolt.api.user_metrics import UserMetric
from sparkbolt.connectors.function_spouts import spout
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
from sparkbolt.streams import KeyedStream, Stream, TopologyBuilder, WindowedStream
from sparkbolt.windows import (
    Count,
    LateTuple,
    Session,
    Sliding,
    Tumbling,
    TupleWindow,
    WindowCollector,
    WindowedBolt,
)

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
    "ComponentHandle",
    "ComponentMetrics",
    "ComponentState",
    "Config",
    "ConfigError",
    "Count",
    "CounterMetric",
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
    "GaugeMetric",
    "Grouping",
    "GroupingContext",
    "HistogramMetric",
    "Hop",
    "InvalidTopology",
    "KeyValueState",
    "KeyedStream",
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
    "Session",
    "Sliding",
    "SourceUnavailable",
    "SparkboltError",
    "Spout",
    "SpoutCollector",
    "StateError",
    "StatefulBolt",
    "Story",
    "Stream",
    "StreamHandle",
    "TaskMetrics",
    "Telemetry",
    "TelemetrySink",
    "TimerMetric",
    "Topology",
    "TopologyBuilder",
    "TopologyContext",
    "TopologyMetrics",
    "TreeState",
    "Tumbling",
    "Tuple",
    "TupleWindow",
    "Unavailable",
    "UserMetric",
    "WindowCollector",
    "WindowedBolt",
    "WindowedStream",
    "bolt",
    "days",
    "hours",
    "milliseconds",
    "minutes",
    "moved_from",
    "seconds",
    "spout",
]
