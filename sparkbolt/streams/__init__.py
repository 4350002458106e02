"""Streams as functions: a topology as a chain of operators, each of which is a bolt."""

from sparkbolt.streams.keyed_stream import KeyedStream, WindowedStream
from sparkbolt.streams.stream import Stream
from sparkbolt.streams.stream_builder import TopologyBuilder

__all__ = ["KeyedStream", "Stream", "TopologyBuilder", "WindowedStream"]
