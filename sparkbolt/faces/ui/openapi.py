"""The OpenAPI document of the REST interface.

It follows from the code: operations come from rows, schemas from types and their docstrings.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from sparkbolt.base.codec import required_fields
from sparkbolt.control.parameters import Parameter, Row
from sparkbolt.version import __version__

Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "object", "description": "Bytes in Base64, as `$bytes`."},
    type(None): {"type": "null"},
    Any: {},
}


@dataclass(frozen=True)
class Operation:
    """One operation of the interface, for its description."""

    method: str
    path: str
    row: Row
    answer: Any
    """The type of its answer; None: it answers with a stream of events."""


def parameter_schema(parameter: Parameter) -> Schema:
    """The schema of a parameter's values."""
    schema = schema_of(parameter.kind, {})
    default = None if parameter.is_required else parameter.default
    limits = {"default": default or None, "minimum": parameter.lowest, "maximum": parameter.highest}
    if parameter.plain_kind is str:
        limits = {"minLength": parameter.lowest, "maxLength": parameter.highest, "default": default or None}
    about = parameter.about[:1].upper() + parameter.about[1:]
    more = {**limits, "description": f"{about}." if about else None, "enum": list(parameter.choices) or None}
    return schema | {name: value for name, value in more.items() if value is not None}


def schema_of(kind: Any, named: dict[str, Schema]) -> Schema:
    """The JSON schema of a type; ``named`` collects those of records.

    >>> schema_of(list[str | None], {})
    {'type': 'array', 'items': {'anyOf': [{'type': 'string'}, {'type': 'null'}]}}
    """
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if is_typeddict(kind) or is_dataclass(kind):
        if kind.__name__ not in named:
            named[kind.__name__] = {}  # it may refer to itself
            named[kind.__name__] = _object(kind, named)
        return {"$ref": f"#/components/schemas/{kind.__name__}"}
    origin, of = get_origin(kind), get_args(kind)
    if kind is dict or origin is dict:
        inner = schema_of(of[1], named) if of else {}
        return {"type": "object", "additionalProperties": inner}
    if origin is list:
        return {"type": "array", "items": schema_of(of[0], named)}
    if origin is tuple and of[-1] is ...:
        return {"type": "array", "items": schema_of(of[0], named)}
    if origin is tuple:
        items = [schema_of(each, named) for each in of]
        return {"type": "array", "prefixItems": items, "minItems": len(of), "maxItems": len(of)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, named) for each in of]}
    if origin is NotRequired:
        return schema_of(of[0], named)
    raise TypeError(f"{kind!r} has no schema; describe it with a record, list, dict, tuple or a plain type")


def _object(kind: Any, named: dict[str, Schema]) -> Schema:
    hints, notes = get_type_hints(kind, include_extras=True), field_notes(kind)
    required = [field.name for field in fields(kind)] if is_dataclass(kind) else required_fields(kind)
    properties = {}
    for name, hint in hints.items():
        properties[name] = schema_of(hint, named)
        if name in notes:
            properties[name]["description"] = notes[name]
    return {
        "type": "object",
        "description": inspect.cleandoc(kind.__doc__ or ""),
        "properties": properties,
        "required": required,
    }


def field_notes(kind: type) -> dict[str, str]:
    """The docstring below each field of a class."""
    return _notes_of(kind.__module__).get(kind.__name__, {})


@functools.cache
def _notes_of(module: str) -> dict[str, dict[str, str]]:
    """By class of a module: its fields' docstrings."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {body.name: dict(_notes(body)) for body in tree.body if isinstance(body, ast.ClassDef)}


def _notes(body: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, note in itertools.pairwise(body.body):
        is_text = isinstance(note, ast.Expr) and isinstance(note.value, ast.Constant)
        if is_text and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            yield field.target.id, inspect.cleandoc(ast.literal_eval(note.value))  # type: ignore[attr-defined]


PROBLEM: Schema = {
    "type": "object",
    "description": "A problem (RFC 9457).",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "A sentence that says what is wrong and what you can do."},
    },
    "required": ["detail", "status", "title", "type"],
}


def document(operations: Sequence[Operation], prefix: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these operations."""
    named: dict[str, Schema] = {"Problem": PROBLEM}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(prefix + operation.path, {})[operation.method.lower()] = _described(operation, named)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sparkbolt",
            "version": __version__,
            "description": "Read the state of topologies and change it. Names of times end in `_ms`; times are "
            "milliseconds since the epoch, durations are milliseconds.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(named.items())),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token that `sparkbolt ui` prints when it starts.",
                }
            },
        },
    }


def _described(operation: Operation, named: dict[str, Schema]) -> dict[str, Any]:
    row, is_change = operation.row, operation.method != "GET"
    about = "the id or the name of a topology; a name means the running topology, or else the newest"
    topology = Parameter(about, name="topology")
    taken = [topology, *(() if is_change else row.parameters)]
    parameters = []
    for one in taken:
        in_path = f"{{{one.name}}}" in operation.path
        if in_path or one is not topology:
            schema = parameter_schema(one)
            told = {"description": schema.pop("description")} if "description" in schema else {}
            place = {"in": "path", "required": True} if in_path else {"in": "query"}
            parameters.append({"name": one.name, **place, **told, "schema": schema})
    content: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
    if operation.answer is not None:
        content = {"application/json": {"schema": schema_of(operation.answer, named)}}
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    answers: dict[str, Any] = {"200": {"description": "Success.", "content": content}}
    described: dict[str, Any] = {"operationId": row.name, "summary": row.about, "responses": answers}
    if parameters:
        described["parameters"] = parameters
    if is_change:
        answers["202"] = {"description": "Accepted. The change applies later; `text` says when.", "content": content}
        answers["409"] = {"description": "Refused; `text` says why.", "content": content}
        answers["401"] = {"description": "The token is missing or wrong.", "content": problem}
        required = [one.name for one in row.parameters if one.is_required]
        properties = {one.name: parameter_schema(one) for one in row.parameters}
        body: Schema = {"type": "object", "properties": properties, "additionalProperties": False, "required": required}
        described |= {
            "security": [{"token": []}],
            "requestBody": {"required": bool(required), "content": {"application/json": {"schema": body}}},
        }
    answers["default"] = {"description": "Error.", "content": problem}
    return described
