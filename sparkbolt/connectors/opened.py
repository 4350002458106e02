"""Opened spouts: what a spout that is open keeps for itself, and what of it travels to executors.

Rule: its arguments are. What ``open`` or a first read makes, such as connections and open files, belongs to one
process, and is missing in a copy until that opens it.

Two spouts share it, and neither is a room for the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar


class OpenedInEachProcess(ABC):
    """A spout whose pickle holds its arguments alone."""

    _opened: ClassVar[tuple[str, ...]] = ()
    """The attributes that belong to one process."""

    @abstractmethod
    def _forget(self) -> None:
        """Begin with nothing open."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to one process."""
        return {name: value for name, value in self.__dict__.items() if name not in self._opened}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take the arguments, with nothing open."""
        self.__dict__.update(state)
        self._forget()
