"""Names: the public names of ``sparkbolt``, imported from the modules that define them.

Users import them from ``sparkbolt``, which loads this module when one of them is first used.
"""

from sparkbolt.api.committers import Committer
from sparkbolt.api.components import AsyncBolt, BasicBolt, Bolt, ColumnBolt, PartitionedSpout, Spout, TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.api.dead_letters import DeadLetter, DeadLetterSink
from sparkbolt.api.durations import days, hours, milliseconds, minutes, seconds
from sparkbolt.api.function_bolts import bolt
from sparkbolt.api.groupings import Grouping
from sparkbolt.api.interfaces import KeyValueState
from sparkbolt.api.moved_code import moved_from
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.api.running import RunningTopology
from sparkbolt.api.topology import Topology
from sparkbolt.api.tuples import Direct, Tuple
from sparkbolt.connectors.function_spouts import spout
from sparkbolt.errors import FailedException, Reject, SparkboltError, Unavailable
from sparkbolt.launch import load  # noqa: F401  with it topologies find their engine
from sparkbolt.streams import Stream, TopologyBuilder
from sparkbolt.windows import Count, LateTuple, Session, Sliding, Tumbling, TupleWindow, WindowedBolt

__all__: list[str] = [
    "AsyncBolt",
    "BadRecord",
    "BasicBolt",
    "Bolt",
    "ColumnBolt",
    "Committer",
    "Config",
    "Count",
    "DeadLetter",
    "DeadLetterSink",
    "Direct",
    "FailedException",
    "Grouping",
    "KeyValueState",
    "LateTuple",
    "PartitionedSpout",
    "Range",
    "Reject",
    "RetryPolicy",
    "RunningTopology",
    "Session",
    "Sliding",
    "SparkboltError",
    "Spout",
    "Stream",
    "Topology",
    "TopologyBuilder",
    "TopologyContext",
    "Tumbling",
    "Tuple",
    "TupleWindow",
    "Unavailable",
    "WindowedBolt",
    "bolt",
    "days",
    "hours",
    "milliseconds",
    "minutes",
    "moved_from",
    "seconds",
    "spout",
]
