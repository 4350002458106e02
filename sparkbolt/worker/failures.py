"""Failures: the meaning of an exception or a reason for its tuple.

Every exception that leaves user code fails its tuple, even a ``BaseException`` that is not an ``Exception``; only
``KeyboardInterrupt`` and ``Interruption`` are raised again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkbolt.api.causes import NOT_TRIED, STOPPING, Cause
from sparkbolt.api.reports import Fail
from sparkbolt.base.exceptions import REASON_CHARACTERS_MAX, line_of, pass_on, reason_of, text_of
from sparkbolt.base.ids import unmix64
from sparkbolt.errors import (
    EmitError,
    EngineError,
    FailedException,
    KilledWorkerError,
    PrepareError,
    Reject,
    ReportedFailedException,
    Unavailable,
    UnkeptError,
)


@dataclass
class Failure:
    """Why the tuple of one row failed."""

    cause: Cause
    reason: str
    traceback: str | None = None
    reported: bool = True
    """Whether the failure is reported as an error, even if the tuple's trees fail with it."""

    def __post_init__(self) -> None:
        """Shorten the reason."""
        if len(self.reason) > REASON_CHARACTERS_MAX:
            self.reason = f"{self.reason[: REASON_CHARACTERS_MAX - 3]}..."


@dataclass(frozen=True)
class FailedFlush:
    """Why the ``flush`` of a task failed, and which of its rows had failed before."""

    failure: Failure
    of_rows: Mapping[int, Failure]
    """By root: the failure of a row."""


def failure_of(error: BaseException) -> Failure:
    """The failure that an exception which left user code means for the tuple.

    Raises:
        KeyboardInterrupt, Interruption: the exception is one of these, which belong to no tuple.
    """
    pass_on(error)
    if isinstance(error, ReportedFailedException):
        return Failure(Cause.FAIL, line_of(error), text_of(error))
    if isinstance(error, FailedException):
        return Failure(Cause.FAIL, line_of(error), reported=False)
    if isinstance(error, KilledWorkerError):
        return Failure(Cause.STATE if isinstance(error, UnkeptError) else Cause.KILLED, line_of(error))
    if isinstance(error, Unavailable):
        return Failure(Cause.UNAVAILABLE, line_of(error) or "something that it depends on is unavailable")
    if isinstance(error, PrepareError) and error.__cause__ is not None:
        return Failure(failure_of(error.__cause__).cause, line_of(error), text_of(error))
    if isinstance(error, Reject):
        return Failure(Cause.REJECTED, line_of(error) or "rejected by the bolt")
    cause = Cause.EMIT if isinstance(error, EmitError) else Cause.EXCEPTION
    return Failure(cause, line_of(error), text_of(error))


def fails_of(roots: Iterable[int], owner: tuple[str, int], failure: Failure, micro_batch_id: int) -> list[Fail]:
    """The fails of the trees with these roots, by a task given as (component, index)."""
    component, index = owner
    return [
        Fail(unmix64(root), component, index, failure.cause, failure.reason, micro_batch_id, failure.traceback)
        for root in roots
    ]


def stop_without_tree(component: str, failure: Failure, on_error: str) -> None:
    """Raise an EngineError if a tuple that belongs to no tree has failed where ``on_error`` is ``stop``.

    The driver stops the topology for a tree that fails; it has no record of a tuple without one.
    """
    if on_error == "stop" and failure.cause in STOPPING:
        raise EngineError(
            f"{component!r} raised for a tuple that belongs to no tree, and its on_error is 'stop': {failure.reason}"
        )


def failure_said(reason: Any) -> Failure:
    """The failure that ``collector.fail(tup, reason)`` means; the reason may be any object.

    >>> failure_said("no such user").reason, failure_said(None).reason, failure_said(b"no").reason
    ('no such user', 'failed by the bolt', "b'no'")
    >>> failure_said(KeyError("user")).reason
    "KeyError: 'user'"
    """
    if isinstance(reason, Unavailable | Reject):  # as if it had been raised
        return replace(failure_of(reason), reported=False)
    text, traceback_ = reason_of(reason)
    return Failure(Cause.FAIL, text or "failed by the bolt", traceback_, reported=False)


def not_tried(failure: Failure) -> Failure:
    """The failure of a tuple that is not tried, because tuples before it have failed with ``failure``."""
    return Failure(failure.cause, NOT_TRIED + failure.reason, reported=False)
