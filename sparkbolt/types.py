"""Types: names for annotations. Programs get these objects as arguments or results, and never make one."""

from sparkbolt.api.component_state import ComponentState
from sparkbolt.api.components import Component
from sparkbolt.api.dead_letters import RawMessage
from sparkbolt.api.groupings import GroupingContext
from sparkbolt.api.interfaces import BasicCollector, BoltCollector, ColumnCollector, SpoutCollector
from sparkbolt.api.topology import BoltDeclarer, ComponentHandle, StreamHandle
from sparkbolt.streams import KeyedStream, WindowedStream
from sparkbolt.windows import WindowCollector

__all__ = [
    "BasicCollector",
    "BoltCollector",
    "BoltDeclarer",
    "ColumnCollector",
    "Component",
    "ComponentHandle",
    "ComponentState",
    "GroupingContext",
    "KeyedStream",
    "RawMessage",
    "SpoutCollector",
    "StreamHandle",
    "WindowCollector",
    "WindowedStream",
]
