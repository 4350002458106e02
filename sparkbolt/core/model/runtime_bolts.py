"""Runtime bolts: bolts that do not see tuple after tuple.

Which question it answers: how does a bolt, such as a windowed one, say that it decides itself what its user code sees
and when?
Rule: to a topology it is just a bolt. What runs it, it makes itself in its task (``bolt_runtime``).

Read before: ``components``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from sparkbolt.core.model.components import BoltBase, TopologyContext
from sparkbolt.core.model.config import Config


class RuntimeBolt(BoltBase):
    """A bolt that brings along what runs it. Its user's attributes are durable like those of any other bolt."""

    @property
    def runs_timers(self) -> bool:
        """Whether timers run from a task's start on: it is told the time once when the topology starts."""
        return False

    @abstractmethod
    def runtime(self, context: TopologyContext, output: Any) -> Any:
        """What runs this bolt in a task; called once a task and worker process, after ``prepare``.

        Args:
            context: the task's.
            output: the task's ``Output`` (``emission``).

        Returns:
            A ``BoltRuntime`` (``bolt_runtime``).
        """

    def mistakes(
        self,
        config: Config,
        streams: Mapping[str, tuple[str, ...]],
        inputs: Mapping[tuple[str, str], tuple[str, ...]],
    ) -> list[str]:
        """Called when the topology is built: what is wrong, one sentence each.

        Args:
            config: the component's.
            streams: the fields of its declared streams.
            inputs: the fields of the streams that it subscribes to, by (component, stream), as far as they exist.
        """
        return []
