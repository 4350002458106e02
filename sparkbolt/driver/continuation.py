"""Continuation: whether a topology can continue from a checkpoint, for a start and for ``sparkbolt check``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sparkbolt.api.topology import Topology
from sparkbolt.api.topology_changes import changes, differs
from sparkbolt.base.file_access import Files
from sparkbolt.driver.ledger.agreement import TOPOLOGY_MISSING, topology_in
from sparkbolt.errors import CheckpointError
from sparkbolt.layout.lane import Lane, lay_out, moved

TOPOLOGY_FILE = "topology"


def stored_topology(files: Files, where: str) -> dict[str, Any] | None:
    """The fingerprint and the placement that a checkpoint holds; None if it is new.

    Args:
        files: the files of the checkpoint.
        where: the checkpoint, for messages.

    Raises:
        CheckpointError: the file with them is missing or damaged.
    """
    data = files.read(TOPOLOGY_FILE)
    if data is not None:
        return topology_in(data, where)
    if any(name.isdigit() for name in files.names("spark/commits")):
        raise CheckpointError(
            f"{where} has {TOPOLOGY_MISSING}: it is damaged; restore the file, or start with a new checkpoint directory"
        )
    return None


def refusals(topology: Topology, known: Mapping[str, Any] | None) -> list[str]:
    """Why the topology cannot continue from a checkpoint, with what to do, a sentence each; empty if it can.

    Args:
        topology: the topology that would start.
        known: what ``stored_topology`` has returned for the checkpoint.
    """
    if known is None:
        return []
    found = changes(known["fingerprint"], json.loads(json.dumps(topology.fingerprint())))
    if found:
        return [str(one) for one in found]
    placement = known["placement"]
    return moved(lay_out(topology, placement["spark_partitions"], placement), placement)


def continued(topology: Topology, cores: int, known: Mapping[str, Any] | None, directory: str) -> Lane:
    """The lane of a start: a new one, or one that keeps the places of a checkpoint.

    Args:
        topology: the topology that starts.
        cores: how many cores Spark has.
        known: what ``stored_topology`` has returned for the checkpoint.
        directory: the checkpoint, for messages.

    Raises:
        CheckpointError: the topology cannot continue from the checkpoint.
    """
    if found := refusals(topology, known):
        raise CheckpointError(differs(directory, found))
    return lay_out(topology, cores, known and known["placement"])
