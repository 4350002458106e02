"""Output claims: how a bolt keeps its output directory from topologies with another checkpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class OutputClaim:
    """Who writes: a component of a topology, and the checkpoint that counts its micro-batches."""

    topology: str
    component: str
    checkpoint_id: str
    """See ``TopologyContext.checkpoint_id``."""
    checkpoint: str
    """The directory or URL of the checkpoint."""
    is_lasting: bool
    """Whether a later start can continue with the checkpoint; False: the topology was started without one."""
    is_new: bool
    """Whether the checkpoint has no committed micro-batch."""
    checkpoint_at: Callable[[str], str | None]
    """Returns the id of the checkpoint in a directory; "" if there is none, None if it is not on this machine."""


class OutputClaimer(ABC):
    """A bolt whose output directory belongs to one checkpoint."""

    @abstractmethod
    def output_refusal(self, claim: OutputClaim) -> str | None:
        """Driver, before the start: why it must not write there, with what to do; None if it may. Changes nothing."""

    @abstractmethod
    def claim_output(self, claim: OutputClaim) -> None:
        """Driver, before the first life: note in the directory to whom it belongs.

        Nothing happens if this machine cannot reach the directory. Called if no component has a refusal.

        Raises:
            CheckpointError: meanwhile the directory belongs to another checkpoint.
        """

    @abstractmethod
    def forget_output(self, ids: Collection[str], micro_batch_id: int) -> None:
        """Driver, before the first micro-batch of a changed topology: remove what may be there of others like it.

        Tasks that there are no more have written it before their micro-batch was committed. Nothing happens if this
        machine cannot reach the directory.

        Args:
            ids: the ids that the component has and had.
            micro_batch_id: the first micro-batch that is not committed.
        """
