"""The daemon: Spark's process that forks Python workers, with everything imported before it forks.

It only imports; it starts no threads, since a fork copies only the thread that forks. The setting
``spark.python.daemon.module`` names it, and Spark starts it once per executor.
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
