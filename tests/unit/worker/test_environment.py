"""What a process that runs tasks is given."""

from __future__ import annotations

import threading

import cloudpickle

from sparkbolt.worker.environment import pickled_definitions

LOCK = threading.Lock()


def test_a_definition_that_cannot_travel_is_left_out() -> None:
    namespace: dict[str, object] = {"LOCK": LOCK}
    exec("def uses_it():\n    return LOCK\n\ndef fine():\n    return 1\n", namespace)
    found = cloudpickle.loads(pickled_definitions({"uses_it": namespace["uses_it"], "fine": namespace["fine"]}))
    assert list(found) == ["fine"]
