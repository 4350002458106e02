"""What is kept of an exception of user code."""

from __future__ import annotations

from sparkbolt.base.exceptions import REASON_CHARACTERS_MAX
from sparkbolt.worker.failures import failure_of


def test_a_reason_is_truncated_to_its_maximum_length():
    reason = failure_of(ValueError("x" * 1_000_000)).reason
    assert len(reason) == REASON_CHARACTERS_MAX
    assert reason.startswith("ValueError: xxx")
    assert reason.endswith("...")


def test_an_exception_with_a_text_that_raises_fails_its_tuple_only():
    class OddError(Exception):
        def __str__(self) -> str:
            return self.args[1]

    failure = failure_of(OddError("one"))
    assert failure.reason == "OddError: <its text raises>"
    assert "OddError" in failure.traceback
