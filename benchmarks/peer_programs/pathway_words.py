"""Pathway's word count. Run by ``peers`` in an environment that has Pathway, with ``PATHWAY_THREADS`` set.

Prints ``began SECONDS`` and ``ended SECONDS WORDS``.
"""

import sys
import time

import pathway as pw

total = 0


def add(key, row, time, is_addition):
    global total
    total += row["count"] if is_addition else -row["count"]


print("began", time.time(), flush=True)
lines = pw.io.plaintext.read(sys.argv[1], mode="static")
words = lines.select(word=pw.apply_with_type(str.split, list[str], lines.data)).flatten(pw.this.word)
counts = words.groupby(words.word).reduce(words.word, count=pw.reducers.count())
pw.io.subscribe(counts, on_change=add)
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
print("ended", time.time(), total, flush=True)
