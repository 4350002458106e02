"""Runtime bolts: bolts that bring their own bolt runtime, which runs their user code in a task."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparkbolt.api.components import BoltBase, TopologyContext
from sparkbolt.api.config import Config

LATE_FIELD = "late_tuple"
"""The one field of the stream to which a bolt sends its late tuples, if it has such a stream."""


class RuntimeBolt(BoltBase):
    """A bolt that brings its own bolt runtime. Its user's attributes are durable like those of any other bolt."""

    @property
    def runs_timers(self) -> bool:
        """Whether timers run from a task's start on: the task then gets the time once when the topology starts."""
        return False

    def runtime_outputs(self) -> Mapping[str, Sequence[str]]:
        """Return the streams that the bolt has besides those in ``outputs``: the names of their fields, by stream."""
        return {}

    def stored_settings(self) -> Mapping[str, str]:
        """Return the settings on which the stored state depends, by name; see ``settings_change``."""
        return {}

    def settings_change(self, before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
        """Return why the stored state cannot go on with other settings, with what to do; None if it can.

        Args:
            before: the ``stored_settings`` that the state was stored with.
            after: those of now. A setting that only one of the two has may come and go.
        """
        differing = [name for name in before if name in after and before[name] != after[name]]
        return (
            ", and ".join(f"{name} was {before[name]} and is now {after[name]}" for name in differing)
            + ": change it back"
            if differing
            else None
        )

    def divides(self, fields: tuple[str, ...] | None) -> str | None:
        """Return why the stored state cannot be divided among another number of tasks; None if it can, by key.

        Args:
            fields: by which all its input streams are grouped; None if they are not grouped by the same fields.
        """
        return "its state cannot be divided: let it have as many tasks as before"

    def split_state(
        self, state: Any, places: Callable[[Sequence[Any]], Mapping[int, Any]], parts: int
    ) -> dict[int, bytes]:
        """Return, by index of a new task, its share of the runtime's state of an old task, for ``join_state``.

        Called only if ``divides`` allows it.

        Args:
            state: the ``TaskState`` of the old task, which is not changed.
            places: from keys to the rows of the keys of each new task; raises if a key is none of the old task.
            parts: how many tasks there will be.
        """
        return {}

    def join_state(self, state: Any, pieces: Sequence[bytes]) -> None:
        """Write the runtime's state of a new task.

        Args:
            state: the ``TaskState`` of the new task; the caller commits it.
            pieces: what ``split_state`` of each old task returned for it.

        Raises:
            StateError: the shares do not fit together; the message says what to do.
        """

    @property
    def has_watermark(self) -> bool:
        """Whether its tuples carry their own time, so that it waits for all sources of its tuples."""
        return False

    @property
    def idle_timeout_ms(self) -> int | None:
        """After how much silence a stream, or a source, no longer holds its watermark; None: it was not set."""
        return None

    @abstractmethod
    def runtime(self, context: TopologyContext, output: Any) -> Any:
        """Create the bolt runtime; called once for each task and worker process, after ``prepare``.

        Args:
            context: the context of the task.
            output: the task's ``Output`` (``emissions``).

        Returns:
            A ``BoltRuntime`` (``bolt_runtime``).
        """

    def mistakes(
        self,
        config: Config,
        streams: Mapping[str, tuple[str, ...]],
        inputs: Mapping[tuple[str, str], tuple[str, ...]],
    ) -> list[str]:
        """Called when the topology is built: return the bolt's mistakes, one sentence each.

        Args:
            config: the settings of the component.
            streams: the fields of its declared streams, by stream.
            inputs: the fields of the streams that it subscribes to, by (component, stream), as far as they exist.
        """
        return []
