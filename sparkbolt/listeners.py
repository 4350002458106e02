"""Listeners: the values that a running topology gives to those who watch it, and their types."""

from sparkbolt.api.causes import Cause, MessageOutcome
from sparkbolt.api.dead_letters import Attempt
from sparkbolt.api.metric_handles import CounterMetric, GaugeMetric, HistogramMetric, TaskMetrics, TimerMetric
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.progress import Progress
from sparkbolt.api.reports import ErrorReport, Fail, FailedTree, MicroBatchReport, Promotion
from sparkbolt.api.running import Telemetry, TelemetrySink
from sparkbolt.api.story import Hop, Story
from sparkbolt.api.tree_life import TreeState
from sparkbolt.api.user_metrics import UserMetric

__all__ = [
    "Attempt",
    "Cause",
    "ComponentMetrics",
    "CounterMetric",
    "ErrorReport",
    "Fail",
    "FailedTree",
    "GaugeMetric",
    "HistogramMetric",
    "Hop",
    "MessageOutcome",
    "MicroBatchReport",
    "Progress",
    "Promotion",
    "Story",
    "TaskMetrics",
    "Telemetry",
    "TelemetrySink",
    "TimerMetric",
    "TopologyMetrics",
    "TreeState",
    "UserMetric",
]
