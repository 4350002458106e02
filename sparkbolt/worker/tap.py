"""The tap: shows operators some tuples of a stage; a stage has one only while somebody peeks.

It shows the first tuples of each stage. With a text to match it looks at more of them, up to a limit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from sparkbolt.api.story import short_values
from sparkbolt.api.tuples import SYSTEM_COMPONENT
from sparkbolt.base.exceptions import printed
from sparkbolt.layout.lane import Lane
from sparkbolt.wire.frames import Column, Moment
from sparkbolt.wire.peek import Peek, PeekedTuple
from sparkbolt.worker.hop_recorder import values_of_row
from sparkbolt.worker.results import Work

PEEKED_MAX = 10
"""How many tuples one stage shows for each peek, in one micro-batch."""
MATCHED_MAX = 1000
"""At how many tuples one stage looks for each peek with a text to match, in one micro-batch."""


class Tap:
    """Collects the tuples of one stage in one micro-batch for the operators who peek."""

    def __init__(self, peeks: Iterable[Peek], lane: Lane, moment: Moment) -> None:
        """Begin without any tuple."""
        self._peeks = defaultdict[str, list[Peek]](list)
        for peek in peeks:
            self._peeks[peek.component].append(peek)
        self._components = lane.topology.components
        self._moment = moment
        self._looked = Counter[Peek]()
        self._shown = Counter[Peek]()
        self.peeked: list[PeekedTuple] = []

    def worked(self, work: Work) -> None:
        """See ``Subscriber``."""
        for peek in self._peeks.get(work.component, ()):
            origin = work.rows.origin
            if not self._components[work.component].streams and origin.component not in ("", SYSTEM_COMPONENT):
                sender = f"{origin.component}[{origin.task}]"
                self._look(peek, work, (origin.stream, sender), origin.fields, work.rows.columns, work.rows.count)
            for sent in work.sent:
                stream = sent.whole.stream
                if peek.stream in (None, stream.name):
                    self._look(peek, work, (stream.name, ""), stream.fields, sent.whole.columns, sent.whole.count)

    def _look(
        self,
        peek: Peek,
        work: Work,
        came: tuple[str, str],
        fields: Sequence[str],
        columns: Sequence[Column],
        count: int,
    ) -> None:
        """Look at rows; ``came`` is their stream, and their sender if they were not emitted here."""
        for row in range(min(count, MATCHED_MAX - self._looked[peek])):
            if self._shown[peek] >= PEEKED_MAX:
                return
            self._looked[peek] += 1
            values = values_of_row(columns, row)
            if peek.match and not any(peek.match in _text(value) for value in values):
                continue
            self._shown[peek] += 1
            shown = short_values(fields, values)
            now = self._moment
            self.peeked.append(
                PeekedTuple(peek, now.micro_batch_id, now.now_ms, work.component, work.index, *came, shown)
            )


def _text(value: object) -> str:
    return value if isinstance(value, str) else printed(value)
