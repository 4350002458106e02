"""Small modules: what has one user and few lines belongs into its user, or says why not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.layers import imports_of
from tests.tidy.repo import Source, Violation

LINES_MIN = 60
REASON = re.compile(r"It is apart( from .*?)? because", re.DOTALL)


def check_small_modules(sources: list[Source]) -> Iterator[Violation]:
    """Each module below ``LINES_MIN`` lines that one other module imports has a reason in its head."""
    users_of: dict[str, set[str]] = {}
    for other in sources:
        for one in imports_of(other):
            for module in (one.module, f"{one.module}.{one.name}"):
                users_of.setdefault(module, set()).add(other.path)
    for source in sources:
        if source.path.endswith(("__init__.py", "__main__.py")) or source.text.count("\n") >= LINES_MIN:
            continue
        users = users_of.get(source.module, set()) - {source.path}
        head = ast.get_docstring(source.tree) or ""
        if len(users) == 1 and not REASON.search(head):
            yield source.violation(
                1,
                f"fewer than {LINES_MIN} lines, and only {users.pop()} imports it",
                "move it there, or say in its head: It is apart from ..., because ...",
            )
