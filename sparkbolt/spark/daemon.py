"""The daemon: Spark's process that forks Python workers, with everything imported before it forks.

Rule: this module only imports; it starts no threads, since a fork copies only the thread that forks.

It is apart from everything because Spark starts it by its name.
The setting ``spark.python.daemon.module`` names it; Spark starts it once per executor.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.daemon import manager

import sparkbolt.spark.lane_query
import sparkbolt.spark.level_task
import sparkbolt.spark.source_task

IMPORTED = (np, pd, pa, sparkbolt.spark.lane_query, sparkbolt.spark.level_task, sparkbolt.spark.source_task)

if __name__ == "__main__":
    manager()
