"""JsonLinesSpout: reads the JSON lines of text files; a line that is not a JSON object fails only its own tree."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from sparkbolt.api.arguments import field_names
from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.named_fields import Fields
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.base.shown_values import cut
from sparkbolt.base.source_names import place_text
from sparkbolt.connectors.files.text_spout import Paths, TextSpout

LINE_CHARACTERS_MAX = 80
"""How much of a line an error shows."""


def _near(line: str, error: Exception) -> str:
    """The part of a line in which the error is."""
    return cut(line, LINE_CHARACTERS_MAX, error.pos if isinstance(error, json.JSONDecodeError) else 0)


class JsonLinesSpout(TextSpout):
    """Emits one tuple for each line of the files; a line holds one JSON object.

    Each field in ``outputs`` takes the object's value under its name, or None if it is missing. Other names of the
    object are ignored.

    Files, ``follow``, ``in_order``, compression and positions work as in ``TextSpout``. Lines with only white space are
    skipped. Any other line that is not a JSON object fails its own tree.

    >>> JsonLinesSpout("orders/*.jsonl", outputs=["customer", "amount"]).outputs
    ['customer', 'amount']
    """

    def __init__(
        self,
        paths: Paths,
        outputs: Fields,
        *,
        follow: bool = False,
        in_order: bool = False,
        encoding: str = "utf-8",
        line_bytes_max: int = 16 << 20,
    ) -> None:
        """Check and store the arguments.

        Raises:
            ConfigError: ``outputs`` is not a list of names, or ``TextSpout`` refuses another argument.
        """
        super().__init__(paths, follow=follow, in_order=in_order, encoding=encoding, line_bytes_max=line_bytes_max)
        self.outputs = field_names("outputs", outputs)

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        """Yield the objects whose lines start in the range, as (offset, values)."""
        fields, place = list(self.outputs), partial(place_text, range_.source)
        for chunk in self.chunks(range_):
            if isinstance(chunk, BadRecord):
                yield chunk
                continue
            for position, line in zip(chunk[0].tolist(), chunk[1].to_pylist(), strict=True):
                if not line or line.isspace():
                    continue
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError) as error:
                    yield BadRecord(position, f"{place(position)}: not JSON ({error}): {_near(line, error)}")
                    continue
                if isinstance(value, dict):
                    yield position, [value.get(field) for field in fields]
                else:
                    line = cut(line, LINE_CHARACTERS_MAX)
                    yield BadRecord(position, f"{place(position)}: expected a JSON object, got {line}")

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        """Yield the same as columns; the method of ``TextSpout`` would yield the raw lines."""
        return PartitionedSpout.read_columns(self, range_)
