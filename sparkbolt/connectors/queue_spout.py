"""QueueSpout: the base of all queue spouts.

Rule 1: a message is confirmed only after its tree is complete and its work is committed.
Rule 2: when a connection is lost, the queue takes back the messages that were open on it. The acks and fails of their
tuples are dropped and counted.
Rule 3: at most ``max_spout_pending`` messages are open, and the spout takes no more than the topology can process soon,
since the queue delivers all open messages again when the driver dies.
Rule 4: with a ``retry`` policy the engine retries a message from its memory, and the queue is notified when the message
is done or given up. Without a policy each failure puts the message back into the queue.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkbolt.api.components import Spout, TopologyContext
from sparkbolt.api.outside import UsesOutside
from sparkbolt.api.retry import DEFAULT
from sparkbolt.connectors.argument_pickle import PicklesArguments
from sparkbolt.errors import EmitError

if TYPE_CHECKING:
    from sparkbolt.api.interfaces import SpoutCollector

log = logging.getLogger(__name__)

RECEIVE_MAX = 1000
"""The most messages that one call of ``receive`` requests: acks wait for the same thread."""
RETRY = DEFAULT
"""The default retry policy of the spouts in this package. It is limited, because with unlimited retries a message that
always fails would be retried at once each time."""
OPEN_MAX = 10_000
"""The most messages of one task that are open if ``max_spout_pending`` is not set."""


class BadMessage(NamedTuple):
    """A message that ``receive`` cannot turn into values; it is given up at once, for ``reason``.

    A message whose values do not fit the declared fields is given up in the same way.
    """

    message_id: Hashable
    reason: str


class QueueSpout(UsesOutside, PicklesArguments, Spout):
    """Base class of spouts for a queue that hands out messages and is notified when they are done.

    A subclass implements three methods: ``receive`` takes messages, ``confirm`` lets the queue forget a message, and
    ``release`` puts one back or gives it up. One thread of the driver process makes all calls of a task. Open
    connections in ``open`` (call ``super().open(context)``) and close them in ``close``. A message id names one
    delivery, not one message: when a queue delivers a message twice, the ids must differ. Attributes whose names begin
    with an underscore are created by ``open`` and are not pickled. A simulation would take messages out of the queue,
    so it refuses to run such a spout unless the spout is fed or ``rehearsable`` is True.

    >>> class Ring(QueueSpout):
    ...     outputs = ["text"]
    ...     def open(self, context):
    ...         super().open(context)
    ...         self._messages = [(1, ["to be"])]
    ...     def receive(self, limit):
    ...         taken, self._messages = self._messages[:limit], self._messages[limit:]
    ...         return taken
    ...     def confirm(self, message_id):
    ...         print("done:", message_id)
    ...     def release(self, message_id, *, again):
    ...         self._messages.append((message_id + 1, ["to be"]))
    >>> Ring().outputs
    ['text']
    """

    rehearsable = False

    def open(self, context: TopologyContext) -> None:
        """Start with no open messages."""
        self._decides = context.config.retry is None
        self._open_max = context.config.max_spout_pending or OPEN_MAX
        self._open: set[Hashable] = set()
        self._dropped = 0
        self._room = 0

    @abstractmethod
    def receive(self, limit: int) -> Iterable[tuple[Hashable, Sequence[Any]] | BadMessage]:
        """Take the messages that have arrived, at most ``limit``, as (message id, values of stream ``default``).

        It is called repeatedly. It must return at once when there is no message, and must never block for long.
        When a new connection has replaced an old one, call ``lost`` before you yield messages of the new one. An
        exception is reported, and the call is repeated after a pause; messages that it yielded before the exception
        count.
        """

    @abstractmethod
    def confirm(self, message_id: Any) -> None:
        """Let the queue forget this message: its work is done and committed. Called once, only while it is open."""

    @abstractmethod
    def release(self, message_id: Any, *, again: bool) -> None:
        """Put a failed message back or give it up. Called once.

        Args:
            message_id: The id that ``receive`` returned.
            again: If True, put the message back into the queue for another delivery (``retry`` is None). If False,
                the message is given up, because its retries are used up or because it cannot be decoded; the queue's
                own dead letter facility, if there is one, takes it.
        """

    def lost(self, message_ids: Iterable[Hashable] | None = None, *, come_again: int | None = None) -> None:
        """Report that the connection of these messages is lost and the queue has taken them back; any method may call.

        Args:
            message_ids: The messages that were open on the connection; None means all open messages.
            come_again: How many messages the queue will deliver again, if known. This includes messages that had
                arrived but were not yet emitted, and messages whose confirmation the queue did not receive.
        """
        gone = self._open.copy() if message_ids is None else self._open.intersection(message_ids)
        self._open -= gone
        if gone or come_again:
            log.warning(
                "%s: a connection was lost; the queue delivers %d messages again, as new ones, and drops the results "
                "of the %d in progress",
                self,
                len(gone) if come_again is None else come_again,
                len(gone),
            )

    def decoded(self, message_id: Hashable, decode: Callable[[], Sequence[Any]]) -> Any:
        """Return a message for ``receive``: its values, or a ``BadMessage`` if they cannot be decoded."""
        try:
            return message_id, decode()
        except ValueError as error:
            return BadMessage(message_id, str(error))
        except Exception as error:  # noqa: BLE001  the messages after it in this call must not be lost
            return BadMessage(message_id, f"{type(error).__name__}: {error}")

    @property
    def open_messages(self) -> int:
        """How many messages of this task are neither confirmed nor released yet."""
        return len(self._open)

    @property
    def wanted(self) -> int:
        """How many messages may be open now, given the topology's rate and ``max_spout_pending``.

        A queue that delivers messages ahead (prefetch) must not have more than this open.
        """
        return len(self._open) + self._room

    @property
    def dropped(self) -> int:
        """How many acks and fails were dropped because the message's connection was lost."""
        return self._dropped

    def next_tuple(self, collector: SpoutCollector) -> None:
        """Emit the messages that have arrived, while there is room."""
        self._room = min(collector.room, self._open_max - len(self._open))
        if self._room < 1:
            return
        for message in self.receive(min(RECEIVE_MAX, self._room)):
            if isinstance(message, BadMessage):
                self._give_up(message, collector)
                continue
            message_id, values = message
            try:
                collector.emit(values, message_id=message_id)
            except EmitError as error:  # the messages after it are taken already and must not be lost
                self._give_up(BadMessage(message_id, str(error)), collector)
            else:
                self._open.add(message_id)
                self._room -= 1

    def _give_up(self, message: BadMessage, collector: SpoutCollector) -> None:
        collector.report_error(f"{self}: message {message.message_id!r} is given up: {message.reason}")
        self.release(message.message_id, again=False)

    def ack(self, message_id: Any) -> None:
        """Confirm the message, unless its connection is lost."""
        if self._is_open(message_id):
            self.confirm(message_id)

    def fail(self, message_id: Any) -> None:
        """Release the message, unless its connection is lost."""
        if self._is_open(message_id):
            self.release(message_id, again=self._decides)

    def _is_open(self, message_id: Any) -> bool:
        if message_id not in self._open:
            self._dropped += 1
            log.debug("%s: a verdict for message %r is dropped: its connection is gone", self, message_id)
            return False
        self._open.discard(message_id)
        return True

    def __str__(self) -> str:
        return type(self).__name__
