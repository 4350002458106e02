"""Words a second of the word count with default settings, on the ``sparkbolt`` of the current directory.

``python rate.py words|columns PATH WORDS DISTINCT`` prints it on its last line. Spark's Python processes, too, look for
modules in the current directory first.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.columns import column_bolts
from benchmarks.runs import rate_of
from benchmarks.text import Text
from benchmarks.words import DEFAULT_TARGET_MS, class_bolts


def main() -> None:
    name, path, words, distinct = sys.argv[1:]
    bolts = {"words": class_bolts, "columns": column_bolts}[name]
    text = Text(Path(path), int(words), int(distinct))
    print(rate_of(bolts(text, target_ms=DEFAULT_TARGET_MS), text))


if __name__ == "__main__":
    main()
