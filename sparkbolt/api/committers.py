"""Committers: bolts whose output leaves the topology only when its micro-batch has succeeded.

On executors a committer only keeps rows. The driver passes the rows of a micro-batch to ``commit`` once, in the order
of txids, after Spark has committed the micro-batch; it passes them again, with the same txid, only if it died between
the return of ``commit`` and the note of it. Prior art: committer bolts of Storm 0.7, whose ``finishBatch`` runs in the
order of txids.
"""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from sparkbolt.api.components import Bolt, BoltBase, TopologyContext
from sparkbolt.api.interfaces import BoltCollector
from sparkbolt.api.pickling import CannotKeepError
from sparkbolt.api.tuples import Tuple
from sparkbolt.base.exceptions import line_of


class CommittingBolt(BoltBase):
    """The base of all bolts whose rows are committed in the driver, however they get their tuples.

    ``begin``, ``commit`` and ``end`` run in the driver, in one thread, on a copy of the bolt that gets no tuples.
    """

    def keep(self, row: Any) -> None:
        """Executor: keep a row for ``commit``; to be called by an ``execute`` of your own.

        Raises:
            CannotKeepError: The row can be pickled, but its pickle cannot be read back.
            Exception: The row cannot be pickled.
        """
        data = pickle.dumps(row, protocol=5)
        try:
            pickle.loads(data)  # as the driver will, where no tuple can fail alone
        except Exception as error:
            raise CannotKeepError(f"its row can be pickled, and reading it back raises {line_of(error)}") from error
        self.__dict__.setdefault("_kept_rows", []).append(data)

    def begin(self, context: TopologyContext) -> None:
        """Driver: called before the first ``commit`` of each start; ``context.index`` is 0.

        ``context.checkpoint_id`` distinguishes the transactions of this topology from those of others.
        ``context.spark`` is the topology's own Spark session.

        If the bolt has another id than when it kept rows, and a crash has left them, a copy with
        ``context.component`` of then commits them first.
        """

    @abstractmethod
    def commit(self, txid: int, rows: Sequence[Any]) -> None:
        """Driver: write the rows of a micro-batch durably, all or none.

        To write them once in spite of a crash, note the txid with them, in one transaction, and do nothing if it is
        noted already.

        Args:
            txid: the number of the transaction, from 1 on; ascending, with gaps. It is one more than the
                micro-batch's, which Spark counts from 0, so a target with 0 has nothing yet.
            rows: the values that ``row`` returned; those of one task in their order, task after task.

        Raises:
            Unavailable: the target is unavailable; ``commit`` is called again with the same rows.
        """

    def end(self) -> None:
        """Driver: called when the topology stops normally, if ``begin`` was called; not called after a crash."""


class Committer(CommittingBolt, Bolt):
    """A bolt that passes its input out of the topology, once for each micro-batch that has succeeded.

    ``row`` and ``execute`` run on executors; ``begin``, ``commit`` and ``end`` run in the driver, in one thread, on a
    copy of the bolt that gets no tuples. In a transactional topology (``Config(transactional=True)``) the rows are
    those of messages that have succeeded, each exactly once. In any other topology a message that fails elsewhere is
    retried, and its rows are written again.

    ``commit`` of a micro-batch is called when Spark has committed it. While it raises ``Unavailable``, it is called
    again, and the topology waits; after any other exception the topology stops, and calls it again at its next start.
    So nothing is lost, and ``commit`` cannot refuse anything that was acked to the spout: check values in ``row``.
    """

    stateless = True

    def row(self, tup: Tuple) -> Any:
        """Executor: return the row to commit for a tuple; by default a dict of its fields.

        The value is pickled and read back. An exception fails the tuple.
        """
        return dict(tup)

    def execute(self, tup: Tuple, collector: BoltCollector) -> None:
        """Keep the tuple's row, and ack the tuple; a tick is only acked."""
        if not tup.is_tick:
            self.keep(self.row(tup))
        collector.ack(tup)


def txid_of(micro_batch_id: int) -> int:
    """Return the txid of a micro-batch: Spark counts micro-batches from 0, and txids begin at 1, as in Storm.

    So 0 is below every txid, and a target whose column of txids defaults to 0 skips nothing.
    """
    return micro_batch_id + 1


def take_rows(bolt: object) -> list[bytes]:
    """The rows, pickled, that a committer has kept since the last call; none for any other bolt.

    It is called before the first tuple of each execution of a micro-batch, and after the last one.
    """
    rows: list[bytes] = bolt.__dict__.pop("_kept_rows", []) if isinstance(bolt, CommittingBolt) else []
    return rows
