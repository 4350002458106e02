"""Runtime bolts: bolts that bring their own bolt runtime, which runs their user code in a task."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
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

    def stored_settings(self) -> Mapping[str, str]:
        """Return the settings on which the stored state depends, by name: a checkpoint with other values is refused.

        A setting that is missing in the checkpoint, or now, may come and go.
        """
        return {}

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
