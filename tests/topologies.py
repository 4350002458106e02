"""The bolts of the word count, which tests share.

They are in a module of their own because Spark's workers import them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from sparkbolt import BasicBolt


class Split(BasicBolt):
    """The words of a line."""

    outputs = ["word"]

    def execute(self, tup: Any, collector: Any) -> None:
        for word in tup["line"].split():
            collector.emit([word])


class Count(BasicBolt):
    """How often each word has come so far, in an attribute, which is durable."""

    outputs = ["word", "count"]

    def prepare(self, context: Any) -> None:
        self.counts: Counter[str] = Counter()

    def execute(self, tup: Any, collector: Any) -> None:
        self.counts[tup["word"]] += 1
        collector.emit([tup["word"], self.counts[tup["word"]]])
