"""Bolts that come with Sparkbolt: they print, and write JSON lines and Parquet.

Read ``part_files`` first: it says why a micro-batch that runs again leaves nothing twice.
"""

from sparkbolt.bolts.json_lines import JsonLinesBolt
from sparkbolt.bolts.parquet import ParquetBolt
from sparkbolt.bolts.printing import PrintBolt

__all__ = ["JsonLinesBolt", "ParquetBolt", "PrintBolt"]
