"""Words a second of the word count with default settings, on whatever ``sparkbolt`` comes first in ``PYTHONPATH``.

``python rate.py words|columns WORDS`` prints it on its last line.
"""

from __future__ import annotations

import sys

from benchmarks.columns import column_bolts
from benchmarks.runs import rate_of
from benchmarks.text import zipf_text
from benchmarks.words import DEFAULT_TARGET_MS, VOCABULARY, class_bolts


def main() -> None:
    bolts = {"words": class_bolts, "columns": column_bolts}[sys.argv[1]]
    text = zipf_text(int(sys.argv[2]), ranks=VOCABULARY)
    print(rate_of(bolts(text, target_ms=DEFAULT_TARGET_MS), text))


if __name__ == "__main__":
    main()
