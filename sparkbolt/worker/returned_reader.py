"""The returned reader: it emits the messages of dead letters that an operator has given back.

Rule 1: the source is read again. The letter's own values are emitted if an operator has edited them, if the source no
longer has the record, or if it belongs to a ``Spout``, whose queue delivers a message once.
Rule 2: a message without a record fails, and becomes a dead letter again: it is never done without a tuple.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sparkbolt.api.causes import Cause
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.api.tuples import DEFAULT_STREAM
from sparkbolt.errors import SourceUnavailable
from sparkbolt.wire.returned import ReturnedRecord, is_returned_source
from sparkbolt.worker.failures import Failure, failure_of
from sparkbolt.worker.source_reader import EntryReader, numbered


class ReturnedReader(EntryReader):
    """Reads the messages of an entry that were given back."""

    _has_values = False
    """Whether the letter has the values of the record that is read: then they are used if it is bad."""

    def _bad_record(self, record: BadRecord, shift: int) -> None:
        if not self._has_values:
            super()._bad_record(record, shift)

    def _again(self, source: str, position: int, sequence: int) -> None:
        texts = self._entry.records or ()
        record, shift = ReturnedRecord.loads(texts[sequence - self._entry.base]), sequence - position
        if not record.edited and not is_returned_source(source):
            self._has_values = bool(record.values)
            found = list(numbered(self._chunks(Range(self._index, source, position, position + 1), shift)))
            if self._bad and not self._has_values:
                return
            self._has_values = False
            if found and self._broken is None and not self._bad:
                for positions, columns, ordinals in found:
                    self._start(self._stream(DEFAULT_STREAM), columns, positions + shift, ordinals)
                return
        broken, self._broken = self._broken, None
        stream = self._streams.get(record.stream)
        if stream is not None and record.fits(tuple(stream.fields)) and not stream.direct:
            columns = [list(column) for column in zip(*record.rows, strict=True)]
            rows = len(record.values)
            self._start(stream, columns, np.full(rows, sequence), np.arange(rows, dtype=np.uint64), ask=False)
            return
        what = f"the record at {source}@{position}"
        if isinstance(broken, SourceUnavailable):
            failure = Failure(Cause.AWAY, f"{what} was not read: {failure_of(broken).reason}", reported=False)
        elif broken is not None:
            failure = replace(failure_of(broken), cause=Cause.READ)
        elif record.values:
            failure = Failure(Cause.EMIT, f"{what} has other fields ({', '.join(record.fields)}) than its stream")
        else:
            failure = Failure(Cause.READ, f"{what} is gone, and its dead letter does not have its values")
        self._fail_record(sequence, failure, unread=True)
