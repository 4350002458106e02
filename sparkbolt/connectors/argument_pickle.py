"""What of a connector travels to other processes: its arguments, and nothing that is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class PicklesArguments:
    """An object whose pickle holds its arguments alone.

    An attribute whose name begins with an underscore belongs to one process, such as a connection or an open file. It
    is missing in a copy until ``_begin`` or the first use makes it.
    """

    def _begin(self) -> None:
        """Begin with nothing open."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to one process."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take the arguments, with nothing open."""
        self.__dict__.update(state)
        self._begin()
