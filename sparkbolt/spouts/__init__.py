"""Spouts that come with Sparkbolt: files of text or JSON lines, a generator, a socket.

Read in this order: ``text`` (the spout), ``planning`` (its half in the driver), ``lines`` (its half on
executors).
"""

from sparkbolt.spouts.generator import GeneratorSpout
from sparkbolt.spouts.json_lines import JsonLinesSpout
from sparkbolt.spouts.tcp import SocketSpout
from sparkbolt.spouts.text import TextSpout

__all__ = ["GeneratorSpout", "JsonLinesSpout", "SocketSpout", "TextSpout"]
