"""Pickles a connector for other processes: its arguments, and nothing that is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class PicklesArguments:
    """An object whose pickle holds its arguments alone.

    A connection or an open file belongs to one process. It is missing in a copy until ``_begin`` or the first use makes
    it.
    """

    _opened: ClassVar[tuple[str, ...] | None] = None
    """The attributes that belong to one process; None: all whose names begin with an underscore."""

    def _begin(self) -> None:
        """Begin with nothing open."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out everything that belongs to one process."""
        opened = self._opened
        if opened is None:
            return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
        return {name: value for name, value in self.__dict__.items() if name not in opened}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take the arguments, with nothing open."""
        self.__dict__.update(state)
        self._begin()
