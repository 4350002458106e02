"""Windows: by count, by time or mixed, for every tuple, on arrival or in event time; sessions; by key.

Most programs need only ``WindowedBolt``, and ``Tumbling``, ``Sliding``, ``Session`` or ``Count``. The policies and
``WindowManager`` have Storm's names and rules, read no clock, and can be used on their own.
"""

from sparkbolt.windows.bolt import LateTuple, WindowedBolt
from sparkbolt.windows.collector import WindowCollector
from sparkbolt.windows.kinds import Count, Policies, Session, Sliding, Tumbling, Window
from sparkbolt.windows.manager import WindowManager
from sparkbolt.windows.policies import (
    Action,
    CountEvictionPolicy,
    Event,
    EvictionContext,
    EvictionPolicy,
    TimeEvictionPolicy,
    WatermarkCountEvictionPolicy,
    WatermarkTimeEvictionPolicy,
)
from sparkbolt.windows.triggers import (
    CountTriggerPolicy,
    TimeTriggerPolicy,
    TriggerPolicy,
    WatermarkCountTriggerPolicy,
    WatermarkTimeTriggerPolicy,
)
from sparkbolt.windows.watermarks import WaterMarkEventGenerator
from sparkbolt.windows.window import TupleWindow, WindowTuples

__all__ = [
    "Action",
    "Count",
    "CountEvictionPolicy",
    "CountTriggerPolicy",
    "Event",
    "EvictionContext",
    "EvictionPolicy",
    "LateTuple",
    "Policies",
    "Session",
    "Sliding",
    "TimeEvictionPolicy",
    "TimeTriggerPolicy",
    "TriggerPolicy",
    "Tumbling",
    "TupleWindow",
    "WaterMarkEventGenerator",
    "WatermarkCountEvictionPolicy",
    "WatermarkCountTriggerPolicy",
    "WatermarkTimeEvictionPolicy",
    "WatermarkTimeTriggerPolicy",
    "Window",
    "WindowCollector",
    "WindowManager",
    "WindowTuples",
    "WindowedBolt",
]
