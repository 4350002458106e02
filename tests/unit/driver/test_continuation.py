"""Whether a topology can continue from a checkpoint: the comparison of a start and of ``sparkbolt check``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkbolt.api.topology import Topology
from sparkbolt.driver.continuation import TOPOLOGY_FILE, continued, refusals, stored_topology
from sparkbolt.errors import CheckpointError
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.layout.lane import lay_out
from tests.unit.api.test_changed_topology import fork, line


def begun(topology: Topology) -> dict[str, Any]:
    placement = lay_out(topology, 2).placement()
    body: dict[str, Any] = json.loads(json.dumps({"fingerprint": topology.fingerprint(), "placement": placement}))
    return body


def test_a_start_keeps_the_places_of_the_checkpoint_with_any_number_of_cores() -> None:
    known = begun(line())
    assert continued(line(), 8, known, "DIR").placement() == known["placement"]
    assert continued(line(), 8, None, "DIR").placement() == lay_out(line(), 8).placement()
    assert refusals(line(), None) == []


def test_a_start_is_refused_for_the_reasons_that_check_shows() -> None:
    for old, new in ((line(), fork()), (fork(), fork(fuse=False))):
        found = refusals(new, begun(old))
        assert found
        with pytest.raises(CheckpointError) as raised:
            continued(new, 2, begun(old), "DIR")
        assert [one.removeprefix("  - ") for one in str(raised.value).splitlines()[1:-1]] == found


def test_a_checkpoint_with_commits_but_without_the_topology_is_damaged() -> None:
    files = MemoryFiles()
    assert stored_topology(files, "checkpoint DIR") is None
    files.write(TOPOLOGY_FILE, json.dumps(begun(line())).encode())
    assert stored_topology(files, "checkpoint DIR") == begun(line())
    files.remove(TOPOLOGY_FILE)
    files.write("spark/commits/0", b"v1")
    with pytest.raises(CheckpointError, match="checkpoint DIR has committed micro-batches but no file 'topology'"):
        stored_topology(files, "checkpoint DIR")
