"""Errors: the errors that Sparkbolt raises.

A message names the component or setting, the expected and the actual value, and the likely mistake.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "CheckpointError",
    "ConfigError",
    "EmitError",
    "EngineError",
    "EnoughRead",
    "FailedException",
    "FencedError",
    "InvalidTopology",
    "InvariantError",
    "KilledWorkerError",
    "LostWorkerError",
    "OutdatedLifeError",
    "PrepareError",
    "Reject",
    "ReportedFailedException",
    "SourceUnavailable",
    "SparkboltError",
    "SpoutAwayError",
    "SpoutOpenError",
    "StateError",
    "Unavailable",
    "UnkeptError",
    "UnknownNameError",
    "WorkerStartError",
    "WrongUseError",
]


class SparkboltError(Exception):
    """The base class of all errors of Sparkbolt, except ``UnknownNameError``, which is a ``KeyError``."""


class ConfigError(SparkboltError):
    """A configuration key is unknown, or its value is not allowed for this key."""


class InvalidTopology(SparkboltError):  # noqa: N818  the name is Storm's
    """A topology has mistakes; ``mistakes`` is a list with one sentence for each of them.

    All mistakes are reported together, not only the first one.
    """

    def __init__(self, name: str, mistakes: Sequence[str]) -> None:
        """Store the sentences and build the message from them."""
        self.name = name
        self.mistakes = list(mistakes)
        lines = "".join(f"\n  - {mistake}" for mistake in self.mistakes)
        super().__init__(f"topology {name!r} has {len(self.mistakes)} mistake(s):{lines}")

    def __reduce__(self) -> tuple[type[InvalidTopology], tuple[str, list[str]]]:
        """Pickle the two arguments only, since the message is built from them."""
        return type(self), (self.name, self.mistakes)


class EmitError(SparkboltError):
    """A component emitted something that its declared streams cannot carry."""


class UnknownNameError(KeyError):
    """There is no field, stream, component or task of this name; the message lists those that exist.

    It is a ``KeyError`` and not a ``SparkboltError``, because user code mostly reads a tuple's fields as it reads
    the keys of a dict.

    >>> print(UnknownNameError("'wrod' does not exist"))
    'wrod' does not exist
    """

    def __str__(self) -> str:
        """The message itself; a plain ``KeyError`` would show its repr."""
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class FailedException(SparkboltError):  # noqa: N818  the name is Storm's
    """User code of a ``BasicBolt`` raises it to fail the input tuple without reporting an error (Storm's name).

    The failure of a tuple that belongs to no tree is reported: no retry and no dead letter shows it.
    """


class ReportedFailedException(FailedException):
    """User code of a ``BasicBolt`` raises it to fail the input tuple and to report the error (Storm's name)."""


class Unavailable(SparkboltError):  # noqa: N818  users read it as a state
    """A bolt raises it in ``execute``, ``flush`` or ``prepare`` while something that it depends on is unavailable.

    The tuple fails, but the failure does not count as an attempt: its message is retried until the dependency is
    available again, however long that takes. While a bolt raises this error for at least half of its input tuples, its
    spouts send it only a few tuples at a time, after waits that grow to 30 seconds.
    """


class PrepareError(SparkboltError):
    """``prepare`` or ``init_state`` of a component raised an exception; it is called again for the next input."""


class Reject(SparkboltError):  # noqa: N818  a bolt's action
    """A bolt raises it for a tuple that can never be processed.

    The tuple's message is not retried, whatever the retry policy is: it becomes a dead letter at once.
    """


class SourceUnavailable(SparkboltError):  # noqa: N818  users read it as a state
    """A ``PartitionedSpout`` raises it in ``read`` or ``open`` while its source is unavailable.

    Raised in ``read``: the rest of the range is read again later, with the backoff of the spout's retry policy. It
    does not count as an attempt, and no message is given up because of it. Raised in ``open``: ``open`` is retried
    until the source is available, for ``outage_patience_secs`` at most, and it does not count as a restart.
    """


class SpoutOpenError(SparkboltError):
    """``open`` of a ``PartitionedSpout`` raised an exception; it is retried a limited number of times."""


class SpoutAwayError(SpoutOpenError):
    """``open`` of a ``PartitionedSpout`` raised ``SourceUnavailable``; it is retried for ``outage_patience_secs``."""


class EnoughRead(SparkboltError):  # noqa: N818  as ``SourceUnavailable``
    """A ``PartitionedSpout`` raises it in ``read`` when a range is too large to be read in one micro-batch.

    The records that ``read`` has returned before are complete. The rest, from ``position`` on, is read as a range of
    the next micro-batch; until then nothing new is read from its source. It does not count as an attempt, and no
    message is given up because of it. Without tracking (``acker_tasks=0``) no range is read again, so it must not be
    raised there.
    """

    def __init__(self, position: int, reason: str) -> None:
        """Store where the rest begins and why it was not read.

        Args:
            position: the position of the first record that was not read; inside the range and after its start.
            reason: a sentence for the log.
        """
        super().__init__(position, reason)
        self.position, self.reason = position, reason

    def __str__(self) -> str:
        """The reason."""
        return self.reason


class KilledWorkerError(SparkboltError):
    """A tuple, a window, a flush or a read is not run again, because it killed its worker process."""


class LostWorkerError(SparkboltError):
    """A worker process died between the tuples of a micro-batch; no tuple is blamed, and the query is restarted."""


class WorkerStartError(SparkboltError):
    """A Python process of Spark did not start in time; it had not run anything of the topology yet."""


class UnkeptError(KilledWorkerError):
    """A tuple, a window or a flush is not run again, because the state that it left in the task cannot be stored."""


class StateError(SparkboltError):
    """A task's durable state cannot be written or read."""


class CheckpointError(SparkboltError):
    """A checkpoint is corrupt, belongs to another topology, or is in use by another driver."""


class FencedError(CheckpointError):
    """Another driver has taken over the checkpoint, so this driver ends; its work does not count any more."""


class OutdatedLifeError(SparkboltError):
    """Another driver has committed to Spark's log after this life loaded its ledger; the next life loads it again."""


class WrongUseError(SparkboltError):
    """A command, or an operator, names something that does not exist, or that is not possible; the exit code is 2."""


class EngineError(SparkboltError):
    """The engine that runs the topology (Java, Spark, a Python worker) cannot do its work."""


class InvariantError(SparkboltError):
    """A rule of Sparkbolt itself was broken: this is a defect of Sparkbolt, never of the user's code."""


def check(condition: bool, message: str) -> None:
    """Raise ``InvariantError(message)`` unless ``condition`` is true; unlike ``assert``, ``-O`` does not remove it."""
    if not condition:
        raise InvariantError(message)
