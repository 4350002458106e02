"""Class attributes: finds containers of a bolt's class that its methods change.

Such a container looks like state, but belongs to the class: all tasks in a process share it, no micro-batch stores it,
and no other process sees it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import deque
from collections.abc import Iterator
from typing import Any

from sparkbolt.api.components import BoltBase
from sparkbolt.api.method_validation import is_ours
from sparkbolt.api.pickling import attributes_of

_CONTAINERS = (dict, list, set, deque, bytearray)
_CHANGING = frozenset(
    [
        *("add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop", "popitem"),
        *("popleft", "remove", "setdefault", "update"),
    ]
)
_DECLARATIONS = ("outputs", "transient")


def changed_class_attributes(bolt: BoltBase) -> Iterator[tuple[str, str]]:
    """Yield (attribute, method) for each container of the class that a method changes and no method replaces.

    Attributes that ``transient`` names are left out. A class whose source cannot be read is not checked.

    >>> class Count(BoltBase):
    ...     counts = {}
    >>> list(changed_class_attributes(Count()))
    []
    """
    own = {*attributes_of(bolt), *bolt.transient, *_DECLARATIONS}
    for cls in type(bolt).__mro__:
        shared = {
            name
            for name, value in vars(cls).items()
            if isinstance(value, _CONTAINERS) and name not in own and name[:2] != "__"
        }
        if shared and not is_ours(cls):
            methods = [method for user in type(bolt).__mro__ if not is_ours(user) for method in _methods(user)]
            replaced = {name for method in methods for name in _stored(method)}
            for method in methods:
                for name in dict.fromkeys(_changed(method, cls.__name__)):
                    if name in shared - replaced:
                        yield name, method.name


def _methods(cls: type) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError, SystemError):  # the last one of Python's parser, after an interruption
        return []
    body: list[Any] = getattr(tree.body[0], "body", [])
    return [one for one in body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.args.args]


def _stored(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the attributes of its first argument that a method sets."""
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def _changed(method: ast.FunctionDef | ast.AsyncFunctionDef, class_name: str) -> Iterator[str]:
    """Yield the attributes of its first argument, or of the class, into which a method writes."""
    owners = {method.args.args[0].arg, class_name}
    for node in ast.walk(method):
        written: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            written = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
            written = node.func.value
        while isinstance(written, ast.Subscript):
            written = written.value
        if isinstance(written, ast.Attribute) and isinstance(written.value, ast.Name) and written.value.id in owners:
            yield written.attr
