"""The note of the last micro-batch that a target has, for a component and a checkpoint."""

from __future__ import annotations

from typing import NamedTuple

from sparkbolt.errors import CheckpointError


class CommitRefusedError(Exception):
    """A micro-batch cannot be committed, and waiting does not help."""


class TxidNote(NamedTuple):
    """The last micro-batch whose rows a target has.

    >>> TxidNote(7, 2).has(8, 5, "the table", "delete the note"), TxidNote(7, 2).has(7, 2, "the table", "delete it")
    (False, True)
    """

    txid: int
    rows: int | None = None
    """How many rows it has; None if the target does not report it."""

    def has(self, txid: int, rows: int, where: str, mend: str) -> bool:
        """Whether the target has a micro-batch with so many rows.

        Args:
            txid: the micro-batch.
            rows: the number of rows to write.
            where: the target.
            mend: the remedy if an older copy of the checkpoint was restored on purpose.

        Raises:
            CheckpointError: the target has a later micro-batch, or this one with other rows.
        """
        if self.txid < txid:
            return False
        if self.txid == txid and self.rows in (None, rows):
            return True
        noted = "" if self.rows is None else f" with {self.rows} rows"
        raise CheckpointError(
            f"{where} has txid {self.txid}{noted}, and this is txid {txid} with {rows} rows: another driver goes on "
            "with this checkpoint or a copy of it, and this one writes nothing. If an older copy of the checkpoint was "
            f"put back on purpose, {mend}; what was written since is written again"
        )
