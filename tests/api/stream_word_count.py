"""The word count with streams as functions."""

from sparkbolt import TopologyBuilder, Tumbling
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.spouts import TextSpout

builder = TopologyBuilder("word-count")
lines = builder.stream(TextSpout("books/*.txt"), name="lines", parallelism=2)
words = lines.flat_map(lambda tup: tup.line.split(), outputs=["word"], name="split")
counts = words.key_by("word").count(name="count")  # fields word, count
counts.to(JsonLinesBolt("out"))
busy = words.key_by("word").window(Tumbling(minutes=1)).count(name="busy")  # fields word, start, end, count
topology = builder.build()
