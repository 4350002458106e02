"""Every error that Sparkbolt raises on purpose.

Which question it answers: what can go wrong that a user can mend, and under which name is it caught?
Rule: a message says who (by id), what was expected, what came, and the likely mistake.
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
]


class SparkboltError(Exception):
    """The base of all errors of Sparkbolt."""


class ConfigError(SparkboltError):
    """A configuration key is unknown, or its value is not one that the key can have."""


class InvalidTopology(SparkboltError):  # noqa: N818  the name is Storm's
    """A topology has mistakes; ``mistakes`` holds one sentence for each, all found at once."""

    def __init__(self, name: str, mistakes: Sequence[str]) -> None:
        """Keep the sentences and make the message of them."""
        self.name = name
        self.mistakes = list(mistakes)
        lines = "".join(f"\n  - {mistake}" for mistake in self.mistakes)
        super().__init__(f"topology {name!r} has {len(self.mistakes)} mistake(s):{lines}")

    def __reduce__(self) -> tuple[type[InvalidTopology], tuple[str, list[str]]]:
        """Pickle by the two arguments, since the message is made of them."""
        return type(self), (self.name, self.mistakes)


class EmitError(SparkboltError):
    """A component emitted something that its declared streams cannot carry."""


class UnknownNameError(KeyError):
    """There is no such field, stream, component or task; the message says which there are.

    It is a ``KeyError`` and no ``SparkboltError``, since most often user code asks a tuple, as one asks a dict.

    >>> print(UnknownNameError("'wrod' does not exist"))
    'wrod' does not exist
    """

    def __str__(self) -> str:
        """The sentence, where a ``KeyError`` would show its repr."""
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class FailedException(SparkboltError):  # noqa: N818  the name is Storm's
    """Raised in a ``BasicBolt`` to fail the input tuple without reporting an error (Storm's name)."""


class ReportedFailedException(FailedException):
    """Raised in a ``BasicBolt`` to fail the input tuple and to report the error too (Storm's name)."""


class Unavailable(SparkboltError):  # noqa: N818  a state of the world, as its users say it
    """Raised by a bolt in ``execute``, ``flush`` or ``prepare``: something that it depends on is away.

    The tuple fails, and that costs it no attempt: its message is given again until the dependency is back, however long
    that takes. While a bolt raises it for at least half of what it gets, its spouts give it only a few tuples at a
    time, after waits that grow to 30 seconds.
    """


class PrepareError(SparkboltError):
    """``prepare`` or ``init_state`` of a component raised an exception; it is called again for what comes next."""


class Reject(SparkboltError):  # noqa: N818  what a bolt does
    """Raised by a bolt: this tuple can never be processed.

    Its message is not given again, whatever its policy says: it becomes a dead letter at once.
    """


class SourceUnavailable(SparkboltError):  # noqa: N818  a state of the world, as its users say it
    """Raised in ``read`` of a ``PartitionedSpout``: the source is away.

    What was not read is asked for again, with the backoff of the spout's policy; it does not count as an attempt, and
    nothing is given up for it. Raised in ``open``, it costs no restart: ``open`` is tried again until the source is
    there, for ``outage_patience_secs`` at most.
    """


class SpoutOpenError(SparkboltError):
    """``open`` of a ``PartitionedSpout`` raised; it is tried again a limited number of times."""


class SpoutAwayError(SpoutOpenError):
    """``open`` of a ``PartitionedSpout`` raised ``SourceUnavailable``; it is tried again for an outage's patience."""


class EnoughRead(SparkboltError):  # noqa: N818  as ``SourceUnavailable``
    """Raised in ``read`` of a ``PartitionedSpout``: the range turned out too large to be read at once.

    What was given is whole. The rest, from ``position`` on, is asked for again as a range with the next micro-batch,
    and nothing new of its source before; it does not count as an attempt, and nothing is given up for it. Where nothing
    is tracked (``acker_tasks=0``) nobody asks again, so it must not be raised there.
    """

    def __init__(self, position: int, reason: str) -> None:
        """Say where the rest begins, within the range and behind its start, and why it was not read."""
        super().__init__(position, reason)
        self.position, self.reason = position, reason

    def __str__(self) -> str:
        """The reason."""
        return self.reason


class KilledWorkerError(SparkboltError):
    """A tuple, a window, a flush or a read is not tried again, because it killed its worker process."""


class LostWorkerError(SparkboltError):
    """A worker process died between the tuples of a micro-batch: nobody is to blame, and the query is started again."""


class WorkerStartError(SparkboltError):
    """Spark has waited in vain for a Python process of its own to start, before it asked anything of the topology."""


class UnkeptError(KilledWorkerError):
    """A tuple, a window or a flush is not tried again, because what it left in the task's state cannot be kept."""


class StateError(SparkboltError):
    """A task's durable state cannot be written or read."""


class CheckpointError(SparkboltError):
    """A checkpoint is corrupt, belongs to another topology, or is in use by another driver."""


class FencedError(CheckpointError):
    """Another driver has taken this one's checkpoint over, so this one ends; what it does no longer counts."""


class OutdatedLifeError(SparkboltError):
    """Spark's log has gone on since a life loaded its ledger, by another driver; the next life begins up to date."""


class EngineError(SparkboltError):
    """The engine under the topology (Java, Spark, a Python worker) cannot do its work."""


class InvariantError(SparkboltError):
    """A rule of Sparkbolt itself was broken: a defect of ours, never of the user."""


def check(condition: bool, message: str) -> None:
    """Raise ``InvariantError(message)`` unless ``condition``; unlike ``assert`` it is never stripped."""
    if not condition:
        raise InvariantError(message)
