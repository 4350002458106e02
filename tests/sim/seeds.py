"""Campaigns run a tenth of their seeds, which the commit chooses: in expectation, ten commits run each seed once.

``SPARKBOLT_SEEDS=all`` runs all of them, and ``SPARKBOLT_SEEDS=3/10`` part 3, counted from 0.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

PARTS = 10


def part() -> tuple[int, int]:
    """(part, of how many)."""
    wish = os.environ.get("SPARKBOLT_SEEDS", "")
    if wish == "all":
        return 0, 1
    if wish:
        written = re.fullmatch(r"(\d+)/(\d+)", wish)
        if written is None or int(written[1]) >= int(written[2]):
            raise ValueError(f"SPARKBOLT_SEEDS={wish}: expected `all`, or K/N with K below N, such as 3/{PARTS}")
        return int(written[1]), int(written[2])
    try:
        command = ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no commit, so the seeds are those of part 0 of {PARTS}: {error}")
        return 0, PARTS
    return int(commit, 16) % PARTS, PARTS


def block(total: int, first: int = 0) -> range:
    """The seeds that this commit runs, of those from ``first`` to ``total``."""
    chosen, parts = part()
    seeds = range(first, total)
    found = seeds[len(seeds) * chosen // parts : len(seeds) * (chosen + 1) // parts]
    print(f"seeds {found.start} to {found.stop - 1} of {total}; SPARKBOLT_SEEDS={chosen}/{parts} runs them again")
    return found
