"""Output ownership: before the start, the bolts whose output directories belong to one checkpoint look at them."""

from __future__ import annotations

from collections.abc import Iterator

from sparkbolt.api.output_claims import OutputClaim, OutputClaimer
from sparkbolt.api.topology import Topology
from sparkbolt.base.locations import local_directory
from sparkbolt.driver.ledger.generations import Generation
from sparkbolt.driver.ledger.origin import successor_of
from sparkbolt.errors import CheckpointError
from sparkbolt.files.local import LocalFiles
from sparkbolt.spark.checkpoint import identity_in


class OutputOwnership:
    """The output directories of a topology with a checkpoint."""

    def __init__(self, topology: Topology, checkpoint_id: str, place: str, *, is_lasting: bool, is_new: bool) -> None:
        """Look at nothing yet.

        Args:
            topology: the topology.
            checkpoint_id: the id of its checkpoint.
            place: the checkpoint's directory or URL.
            is_lasting: whether a later start can continue with it.
            is_new: whether it has no committed micro-batch.
        """
        self._claims = [
            (
                spec.component,
                OutputClaim(topology.name, name, checkpoint_id, place, is_lasting, is_new, checkpoint_at),
            )
            for name, spec in topology.components.items()
            if isinstance(spec.component, OutputClaimer)
        ]

    def refusals(self) -> Iterator[str]:
        """Why components must not write, a sentence each; nothing is changed."""
        for bolt, claim in self._claims:
            why = bolt.output_refusal(claim)
            if why is not None:
                yield why

    def check(self) -> None:
        """Refuse the start if a component must not write.

        Raises:
            CheckpointError: a directory belongs to another checkpoint.
        """
        for why in self.refusals():
            raise CheckpointError(why)

    def claim(self) -> None:
        """Mark the directories as those of this checkpoint.

        Raises:
            CheckpointError: meanwhile a directory belongs to another checkpoint.
        """
        for bolt, claim in self._claims:
            bolt.claim_output(claim)


def forget_uncommitted(topology: Topology, generation: Generation) -> None:
    """Remove what tasks of the generation before have written in the first micro-batch of this one, uncommitted.

    A transactional topology has written nothing then.
    """
    before = {new: old for old, new in generation.renamed.items()}
    for name, spec in topology.components.items():
        if isinstance(spec.component, OutputClaimer) and not spec.config.transactional:
            spec.component.forget_output({name, before.get(name, name)}, generation.base)


def checkpoint_at(place: str) -> str | None:
    """The id of the checkpoint in a directory of this machine; "" if none goes on there, None if it is elsewhere."""
    directory = local_directory(place)
    if directory is None:
        return None
    files = LocalFiles(directory)
    return "" if successor_of(files) is not None else identity_in(files) or ""
