"""The dead letter reader: it reads messages that are given up once more, and writes their dead letters.

Rule 1: each dead letter has its own tree, with the sequence that the plan has reserved for it. The tree is complete
when the sink has written the letter, or when all bolts that get the letter as a tuple have acked it; nothing else
finishes the message.
Rule 2: if a sink raises, the trees of all letters of that call fail with cause ``dead letter``, and a later plan
retries them. Retried letters are written one by one, so that a letter that the sink refuses does not hold up the
others. A sink that has raised ``REFUSALS_MAX`` times in a row is not called again in the same micro-batch, because each
call to an unavailable sink takes time.
Rule 3: letters for the checkpoint leave the micro-batch as lines of JSON in the feedback; the driver writes them, and
they are durable before the ledger's entry is. So an entry yields a limited number of bytes of letters; the others wait
for a later plan. A letter that alone exceeds the limit is written without its values, with a note that says so.
Rule 4: if a record can no longer be read, its letter is still written: it holds the message's story and a note that
says what is missing. Before that, a source that raises is read a few times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sparkbolt.api.causes import Cause
from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.dead_letters import (
    CHECKPOINT,
    DeadLetter,
    ExhaustedMessage,
    Printed,
    RawMessage,
    row_of_letter,
    stream_of,
)
from sparkbolt.api.progress import Activity
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.api.reports import ErrorReport, Fail
from sparkbolt.api.retry import refused
from sparkbolt.api.story import short
from sparkbolt.api.tuples import DEFAULT_STREAM
from sparkbolt.base.exceptions import pass_on
from sparkbolt.base.ids import tree_key
from sparkbolt.base.source_names import place_text, short_source
from sparkbolt.errors import EmitError, SourceUnavailable
from sparkbolt.layout.lane import policy_of
from sparkbolt.wire.exclusion import NOTHING_EXCLUDED, Exclusion
from sparkbolt.wire.frames import FrameKind, python_values, wrap
from sparkbolt.wire.plan import Entry, Record, Refused
from sparkbolt.wire.returned import ReturnedRecord, is_returned_source
from sparkbolt.worker.failures import Failure, failure_of
from sparkbolt.worker.source_reader import EntryReader
from sparkbolt.worker.stage import Stage

READS_MAX = 3
"""How often a record is read, if reading raises, before its letter is written without it."""
HANDED_OVER_BYTES_MAX = 4 << 20
"""The most bytes of letters for the checkpoint that an entry yields; one letter is always among them."""
REFUSALS_MAX = 3
"""After this many failed writes in a row, the other letters of a task wait for a later plan."""


@dataclass
class FoundMessage:
    """The part of a message that could be read."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    raw: RawMessage | None = None
    notes: list[str] = field(default_factory=list)
    message_id: str | None = None
    """The user's own id, if the record has it."""
    is_returned: bool = False
    """Whether the values are those of an earlier dead letter, which was given back."""


class LetterReader(EntryReader):
    """Reads the messages of an entry that are given up, and writes their dead letters."""

    def __init__(
        self,
        stage: Stage,
        entry: Entry,
        traced: Sequence[int] = (),
        exclusion: Exclusion = NOTHING_EXCLUDED,
        *,
        kept: Mapping[int, tuple[Any, ...]] | None = None,
        id_field: str | None = None,
    ) -> None:
        """Read ``entry`` within ``stage``.

        Args:
            stage: the stage.
            entry: the entry to read.
            traced: as in ``Piece``.
            exclusion: the messages that this execution of the plan leaves out.
            kept: the values of messages that are kept in an outbox, by position; None: the spout reads them.
            id_field: the field of these values with the user's own id.
        """
        super().__init__(stage, entry, traced, exclusion)
        self._kept = kept
        self._id_field = id_field

    def read(self, records: Sequence[Record] = ()) -> None:
        """Make the letters, and write or emit them by the spout's setting ``dead_letters``."""
        entry = self._entry
        letters: list[tuple[int, DeadLetter]] = []
        for place, text in enumerate(entry.letters or ()):
            exhausted, sequence = ExhaustedMessage.loads(text), entry.base + place
            if entry.source is None:
                record = records[place]
                fields = self._stream(record.stream).fields
                again = self._emitted_again(record)
                letters.append((sequence, self._letter(exhausted, None, record.stream, fields, again.rows, again)))
                continue
            position = entry.position_of(sequence)
            back = ReturnedRecord.loads(exhausted.record) if exhausted.record is not None else None
            found = self._found_message(exhausted, back, position, sequence)
            if found is not None:
                stream, fields = DEFAULT_STREAM, self._stream(DEFAULT_STREAM).fields
                if back is not None and (found.is_returned or not found.rows):
                    stream, fields = back.stream, back.fields
                letters.append((sequence, self._letter(exhausted, position, stream, fields, found.rows, found)))
        spec = self._stage.lane.topology.components[self._component]
        target = stream_of(spec.dead_letters)
        if not letters:
            return
        if spec.dead_letters == CHECKPOINT or (target is not None and refused(policy_of(spec), entry.attempt)):
            self._hand_over(letters)
        elif target is not None:
            self._emit_letters(target, letters)
        else:
            self._write(letters)

    def _found_message(
        self, exhausted: ExhaustedMessage, back: ReturnedRecord | None, position: int, sequence: int
    ) -> FoundMessage | None:
        """The values of a message of a source; None if it has to be read again later.

        Those of a returned letter are its own, if they were edited or the source does not have them.
        """
        source = self._entry.source
        assert source is not None
        returned = None
        if back is not None:
            returned = FoundMessage(back.rows, message_id=back.message_id, is_returned=True)
        if returned is not None and (self._kept is not None or is_returned_source(source) or (back and back.edited)):
            return returned
        if self._kept is not None:
            return self._kept_at(position)
        found = self._found(exhausted, Range(self._index, source, position, position + 1), sequence)
        return returned if found is not None and not found.rows and returned is not None and returned.rows else found

    def _kept_at(self, position: int) -> FoundMessage:
        """The values of a message in an outbox."""
        values = self._kept.get(position) if self._kept is not None else None
        if values is None:
            return FoundMessage(notes=["its values are not kept any more"])
        fields = self._stream(DEFAULT_STREAM).fields
        own_id = values[fields.index(self._id_field)] if self._id_field in fields else None
        return FoundMessage([values], message_id=short(own_id) if self._id_field in fields else None)

    @staticmethod
    def _emitted_again(record: Record) -> FoundMessage:
        """The values that a ``Spout`` has emitted; their printed form if they cannot be read."""
        try:
            found = FoundMessage([tuple(record.read())])
        except EmitError as error:
            shown = record.values.shown if isinstance(record.values, Refused) else ()
            found = FoundMessage([tuple(map(Printed, shown))] if shown else [], notes=[str(error)])
        return replace(found, message_id=record.message_id)

    def _letter(
        self,
        exhausted: ExhaustedMessage,
        position: int | None,
        stream: str,
        fields: tuple[str, ...],
        rows: Sequence[tuple[Any, ...]],
        found: FoundMessage | None = None,
    ) -> DeadLetter:
        topology = self._stage.lane.topology
        return DeadLetter(
            id=exhausted.id_in(topology.name, self._component),
            topology=topology.name,
            version=topology.version,
            component=self._component,
            task=self._index,
            attempts=exhausted.attempts,
            attempts_left_out=exhausted.attempts_left_out,
            source=None if is_returned_source(self._entry.source) else self._entry.source,
            position=None if is_returned_source(self._entry.source) else position,
            end=exhausted.end,
            message_id=(found.message_id if found is not None else None) or exhausted.message_id,
            stream=stream,
            fields=fields,
            tuples=tuple(rows),
            raw=found.raw if found is not None else None,
            note="; ".join(found.notes) if found is not None else "",
        )

    def _found(self, exhausted: ExhaustedMessage, range_: Range, sequence: int) -> FoundMessage | None:
        """The values that the spout still has of a message; None if it has to be read again later."""
        found, place = FoundMessage(), place_text(range_.source, range_.start)
        if exhausted.end is not None and exhausted.end > range_.end:
            found.notes.append(
                f"it stands for all of {short_source(range_.source)} from {range_.start} to {exhausted.end}"
            )
        else:
            self._notes = found.notes
            for _, columns in self._chunks(range_, sequence - range_.start):
                found.rows += zip(*map(python_values, columns), strict=True)
            if self._broken is not None:
                text = f"{place} could not be read again: {failure_of(self._broken).reason}"
                away = isinstance(self._broken, SourceUnavailable)
                if away or (self._entry.attempt < READS_MAX and exhausted.attempts[-1].cause != Cause.READ):
                    self._fail_letters([sequence], text, failure_of(self._broken))
                    return None
                found.notes.append(text)
            elif not found.rows and not self._bad:
                found.notes.append(f"the record at {place} is gone, or became no tuple")
        found.raw = self._raw(range_, found)
        return found

    def _bad_record(self, record: BadRecord, shift: int) -> None:
        self._notes.append(record.reason)

    def _raw(self, range_: Range, found: FoundMessage) -> RawMessage | None:
        worker = self._stage.worker
        spout: PartitionedSpout = worker.spout(self._entry.task)
        self._reads += 1
        try:
            with worker.doing(Activity.READ, self._entry.task, self._reads):
                raw = spout.raw(range_)
            if raw is not None and not isinstance(raw, RawMessage):
                raise TypeError(f"raw returned a {type(raw).__name__}, expected a RawMessage or None")
            return raw
        except BaseException as error:  # noqa: BLE001  user code may raise anything
            pass_on(error)
            found.notes.append(f"the message as it came could not be read: {failure_of(error).reason}")
            return None

    # The targets of letters.

    def _write(self, letters: Sequence[tuple[int, DeadLetter]]) -> None:
        worker, number = self._stage.worker, self._entry.task
        sequences = [sequence for sequence, _ in letters]
        when, refusals = worker.refusals.get(number, (-1, 0))
        if when != self._stage.moment.micro_batch_id:
            refusals = 0
        if refusals >= REFUSALS_MAX:
            text = f"not tried: {refusals} tries to write dead letters had failed before it in the same micro-batch"
            self._fail_letters(sequences, text, Failure(Cause.LETTER, text))
            return
        self._reads += 1
        try:
            with worker.doing(Activity.WRITE, number, self._reads):
                worker.letter_sink(number).write([letter for _, letter in letters])
        except BaseException as error:  # noqa: BLE001  user code may raise anything, and so may disks and brokers
            pass_on(error)
            worker.drop_letter_sink(number)
            worker.refusals[number] = self._stage.moment.micro_batch_id, refusals + 1
            failure = failure_of(error)
            whose = letters[0][1].where + (f" and {len(letters) - 1} more" if len(letters) > 1 else "")
            text = f"dead letters could not be written ({whose}): {failure.reason}; they are tried again"
            self._fail_letters(sequences, text, failure)
            return
        worker.refusals.pop(number, None)
        self._stage.start_trees(self._keys(sequences))

    def _hand_over(self, letters: Sequence[tuple[int, DeadLetter]]) -> None:
        """Send letters for the checkpoint to the driver, with the feedback."""
        done, lines, waiting, size = [], [], [], 0
        for sequence, letter in letters:
            line = _line_of(letter)
            if size and size + len(line) > HANDED_OVER_BYTES_MAX:
                waiting.append(sequence)
                continue
            size += len(line)
            done.append(sequence)
            lines.append(line)
        if lines:
            row = wrap(FrameKind.LETTERS, b"".join(lines), self._stage.moment)
            self._stage.add_row((self._stage.lane.feedback_dest, row))
            self._stage.start_trees(self._keys(done))
        if waiting:
            text = f"not written: the letters before it have {size} bytes already"
            self._fail_letters(waiting, text, Failure(Cause.LETTER, text))

    def _emit_letters(self, name: str, letters: Sequence[tuple[int, DeadLetter]]) -> None:
        """Emit each letter on a stream of the topology: one tuple for each tuple that the message became."""
        stream = self._stream(name)
        rows: list[list[Any]] = []
        sequences: list[int] = []
        ordinals: list[int] = []
        for sequence, letter in letters:
            for ordinal, values in enumerate(letter.values() or [{}]):
                rows.append(row_of_letter(letter, values, stream.fields))
                sequences.append(sequence)
                ordinals.append(ordinal)
        columns = [list(column) for column in zip(*rows, strict=True)]
        self._start(stream, columns, np.array(sequences, dtype=np.int64), np.array(ordinals, dtype=np.uint64))

    def _keys(self, sequences: Sequence[int]) -> Any:
        return np.array([tree_key(self._entry.task, sequence) for sequence in sequences], dtype=np.uint64)

    def _fail_letters(self, sequences: Sequence[int], text: str, failure: Failure) -> None:
        """Start the letters' trees and fail them: their messages wait for another try."""
        if failure.cause != Cause.LETTER:  # a letter that was not tried is not another error
            self._stage.counts(self._component).errors += 1
            self._stage.report(ErrorReport(self._component, self._index, text, failure.traceback))
        self._stage.start_trees(self._keys(sequences))
        number = self._stage.moment.micro_batch_id
        for key in self._keys(sequences).tolist():
            self._stage.fail(Fail(key, self._component, self._index, Cause.LETTER, text, number, failure.traceback))


def _line_of(letter: DeadLetter) -> bytes:
    """A letter as a line of JSON; without its values if it is too long."""
    line = f"{letter.to_line()}\n".encode()
    if len(line) <= HANDED_OVER_BYTES_MAX:
        return line
    cut = f"its values are left out: the letter would have {len(line)} bytes, at most {HANDED_OVER_BYTES_MAX} are kept"
    note = "; ".join(filter(None, (letter.note, cut)))
    return f"{replace(letter, tuples=(), raw=None, note=note).to_line()}\n".encode()
