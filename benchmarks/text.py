"""Text with as many distinct words as real text has, the same on every machine.

What do the word counts read?
Rule: rank r has probability proportional to 1/r (Zipf's law with exponent 1), and its spelling depends on r alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CACHE = Path(__file__).parent.parent / ".bench"
RANKS = 250_000
WORDS_A_LINE = 10
_CHUNK_LINES = 100_000
_SYLLABLES = tuple(a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in "cdklmnrs")


@dataclass(frozen=True)
class Text:
    """A file of ``words`` words, ten a line."""

    path: Path
    words: int
    distinct: int

    @property
    def nbytes(self) -> int:
        return self.path.stat().st_size


def spelling(rank: int) -> str:
    """The word of a rank, from 0: one syllable for the first 480, two for the next 230,400, then three.

    >>> spelling(0), spelling(479), spelling(480), spelling(230_880)
    ('bac', 'tus', 'bacbac', 'bacbacbac')
    """
    syllables = []
    number = rank + 1
    while number:
        number, digit = divmod(number - 1, len(_SYLLABLES))
        syllables.append(_SYLLABLES[digit])
    return "".join(reversed(syllables))


def zipf_text(words: int, *, ranks: int = RANKS, seed: int = 1, directory: Path | None = None) -> Text:
    """The text of at least ``words`` words (whole lines); made once, then taken from the cache.

    Args:
        words: how many, rounded up to whole lines.
        ranks: how many distinct words there can be.
        seed: of the order of words.
        directory: where it is kept; default ``.bench/``.
    """
    directory = CACHE if directory is None else directory
    path = directory / f"zipf-{words}-{ranks}-{seed}.txt"
    facts = path.with_suffix(".json")
    if not facts.exists():
        directory.mkdir(parents=True, exist_ok=True)
        facts.write_text(json.dumps(_write(path, words, ranks, seed)))
    known = json.loads(facts.read_text())
    return Text(path, known["words"], known["distinct"])


def _write(path: Path, words: int, ranks: int, seed: int) -> dict[str, int]:
    random = np.random.default_rng(seed)
    cumulative = np.cumsum(1.0 / np.arange(1, ranks + 1))
    cumulative /= cumulative[-1]
    spellings = pa.array([spelling(rank) for rank in range(ranks)])
    seen = np.zeros(ranks, dtype=bool)
    lines = -(-words // WORDS_A_LINE)
    with path.open("wb") as file:
        for first in range(0, lines, _CHUNK_LINES):
            count = min(_CHUNK_LINES, lines - first) * WORDS_A_LINE
            chosen = np.searchsorted(cumulative, random.random(count))
            seen[chosen] = True
            file.write(_joined(spellings.take(pa.array(chosen))))
    return {"words": lines * WORDS_A_LINE, "distinct": int(seen.sum())}


def _joined(words: pa.Array) -> bytes:
    """The words as lines, each ended by a newline."""
    offsets = pa.array(np.arange(0, len(words) + 1, WORDS_A_LINE, dtype=np.int32))
    lines = pc.binary_join(pa.ListArray.from_arrays(offsets, words), " ")
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return pc.binary_join(whole, "\n")[0].as_buffer().to_pybytes() + b"\n"
