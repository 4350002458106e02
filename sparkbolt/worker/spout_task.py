"""The task of a ``Spout``: in which order its methods are called, and what happens to its emissions.

A shell gives it turns, one after the other: ``spark`` in a thread of the task's own, the simulator and ``LocalEngine``
before every plan and after every promotion. An exception of user code is reported, and never ends the topology.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from sparkbolt.api.components import Spout, TopologyContext
from sparkbolt.api.reports import ErrorReport
from sparkbolt.base.exceptions import reason_of
from sparkbolt.wire.plan import Record
from sparkbolt.worker.collectors import SpoutRecordCollector
from sparkbolt.worker.emissions import Output
from sparkbolt.worker.returned_values import refuse_of_spout


class EmissionBuffer(Protocol):
    """The place in which the records of a task wait for a plan, and verdicts wait for the task."""

    exhausted: bool
    acks: deque[Any]
    fails: deque[Any]

    @property
    def room(self) -> int:
        """How many more records the buffer takes now."""

    def emit(self, record: Record, message_id: Any) -> None:
        """Add a record."""


class SpoutTask(ABC):
    """One task of a ``Spout``."""

    def __init__(
        self,
        spout: Spout,
        context: TopologyContext,
        output: Output,
        buffer: EmissionBuffer,
        *,
        tracked: bool,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """Store the arguments; nothing is opened yet.

        Args:
            spout: the task's own copy.
            context: the context of the task.
            output: the streams on which it emits.
            buffer: the buffer of the task.
            tracked: whether the topology has ackers.
            lock: guards the buffer, if other threads use it.
        """
        self.spout = spout
        self.context = context
        self._output = output
        self._collector = SpoutRecordCollector(output)
        self._buffer = buffer
        self._tracked = tracked
        self._lock = nullcontext() if lock is None else lock
        self.is_open = False
        self._is_active = False
        """Whether the spout was activated, and not deactivated since."""

    # Methods that each shell overrides.

    @abstractmethod
    def raised(self, method: str, error: BaseException) -> None:
        """A method of the spout raised."""

    @abstractmethod
    def reported(self, report: ErrorReport) -> None:
        """The spout reported an error."""

    @abstractmethod
    def emitted(self) -> None:
        """New records are in the buffer; called under the lock."""

    @contextmanager
    def calling(self, method: str) -> Iterator[None]:
        """Surrounds each call of a method of the spout."""
        yield

    # The turns.

    def go_on_with(self, buffer: EmissionBuffer) -> None:
        """Use the buffer of a new life in the same driver, which has taken over the content of the old one."""
        self._buffer = buffer

    def open(self) -> bool:
        """Open the spout, unless it is open; returns whether it is."""
        self.is_open = self.is_open or self._call("open", self.context)
        return self.is_open

    def take_turn(self, emits: bool) -> bool:
        """Pass on verdicts, activate or deactivate, and let the spout emit once; returns whether it emitted.

        Args:
            emits: whether spouts may emit.
        """
        self.hear()
        if emits != self._is_active:
            self._is_active = emits
            self._call("activate" if emits else "deactivate")
        exhausted = self._is_exhausted()
        with self._lock:
            self._buffer.exhausted = exhausted and not self._collector.records
            may_read = emits and self._buffer.room > 0 and not self._buffer.exhausted
            self._collector.room = self._buffer.room
        return may_read and self._call("next_tuple", self._collector) and self._has_emitted

    def hear(self) -> None:
        """Call ``ack`` and ``fail`` for all promoted verdicts, once for each."""
        while True:
            with self._lock:
                acked = bool(self._buffer.acks)
                verdicts = self._buffer.acks or self._buffer.fails
                if not verdicts:
                    return
                message_id = verdicts[0]
            self._call("ack" if acked else "fail", message_id)
            with self._lock:  # removed only now, so that the topology is not idle before the spout is notified
                buffer = self._buffer  # it may be the buffer of a new life, which has taken over this verdict
                (buffer.acks if acked else buffer.fails).popleft()

    def close(self) -> None:
        """Pass on verdicts, and close the spout, if it was opened."""
        if self.is_open:
            self.hear()
            self._call("close")

    def _is_exhausted(self) -> bool:
        """Whether the spout is exhausted and never emits again; False if ``exhausted`` raises."""
        try:
            with self.calling("exhausted"):
                return bool(self.spout.exhausted)
        except BaseException as error:  # noqa: BLE001  as in ``_call``
            self.raised("exhausted", error)
            return False

    def _call(self, method: str, *arguments: Any) -> bool:
        """Call user code, which may raise anything: ``sys.exit`` ends neither its thread nor the topology."""
        failure: BaseException | None = None
        try:
            with self.calling(method):
                refuse_of_spout(getattr(self.spout, method)(*arguments), method, self.context.component)
        except BaseException as error:  # noqa: BLE001
            failure = error
        self._hand_over()
        if failure is not None:
            self.raised(method, failure)
        return failure is None

    def _hand_over(self) -> None:
        records, self._collector.records = self._collector.records, []
        self._has_emitted = bool(records)
        bytes_max = self.context.config.tuple_bytes_max
        made = [
            (Record.of(stream, values, self._tracked and message_id is not None, task, bytes_max), message_id)
            for stream, values, message_id, task in records
        ]
        if made:
            with self._lock:
                for record, message_id in made:
                    self._buffer.emit(record, message_id)
                self.emitted()
        for error in self._output.errors:
            self.reported(ErrorReport(self.context.component, self.context.index, *reason_of(error)))
        self._output.errors.clear()
