"""Give-backs: an operator who gives dead letters back at random steps, while the topology runs and between its lives.

All randomness comes from the seed, and nothing else uses it, so the faults of a seed stay what they are.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from sparkbolt.api.dead_letters import DeadLetter
from sparkbolt.driver.returned_letters import RETURNED_FOLDER, request_of
from sparkbolt.files.memory import MemoryFiles

LETTERS_MAX = 3
"""The most letters of one request."""
ACTS_ONE_IN = 3


class GiveBacks:
    """The requests of one seed; a letter may be requested more than once."""

    def __init__(self, seed: int, most: int, files: MemoryFiles, letters: Mapping[str, DeadLetter]) -> None:
        """Begin without requests.

        Args:
            seed: determines the steps, and the letters.
            most: the most requests.
            files: the checkpoint.
            letters: the dead letters that sinks hold, by id.
        """
        self._random = random.Random(f"operator {seed}")
        self._left, self._files, self._letters = most, files, letters
        self.requests: dict[tuple[str, int], DeadLetter] = {}
        """The letter of each request, by file and line."""

    def act(self, *, at_end: bool = False) -> bool:
        """Perhaps write a request; return whether one was written.

        Args:
            at_end: everything is finished: a request is written if there are any left, and any letters.
        """
        if not self._left or not self._letters or not (at_end or self._random.randrange(ACTS_ONE_IN) == 0):
            return False
        self._left -= 1
        name, known = f"{self._random.getrandbits(64):016x}", sorted(self._letters)
        chosen = [self._letters[self._random.choice(known)] for _ in range(self._random.randint(1, LETTERS_MAX))]
        self.requests.update(((name, line), letter) for line, letter in enumerate(chosen))
        self._files.write(f"{RETURNED_FOLDER}/{name}", request_of((letter, False) for letter in chosen))
        return True
