"""The reference: every public name with what its docstring says, as pages.

    python -m docs.reference       # makes docs/api/*.md again; a test says when that is due

Rule 1: nothing is written here: signatures, defaults and words are those of the source.
Rule 2: the same source gives the same bytes.
Rule 3: ``DOORS`` are the public modules; what their ``__all__`` names is public, and nothing else.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from docs.links import anchors_of

PAGES = Path(__file__).parent / "api"
DOORS = {
    "sparkbolt": "What a topology is made of.",
    "sparkbolt.listeners": "The values that a running topology gives to those who watch it.",
    "sparkbolt.types": "Names for annotations: collectors, handles and contexts.",
    "sparkbolt.spouts": "Where tuples come from.",
    "sparkbolt.spouts.kafka": "Kafka beyond its spout: dead letters, and tests without a broker.",
    "sparkbolt.bolts": "Where tuples go.",
    "sparkbolt.windows": "Windows, and policies of one's own.",
    "sparkbolt.telemetry": "Traces for OpenTelemetry.",
    "sparkbolt.testing": "Tests of a topology, and its simulation, without Spark.",
    "sparkbolt.pytest_plugin": "The pytest fixture `topology_driver`.",
    "sparkbolt.errors": "Errors that logs name and few programs catch; those that many catch are at the front door.",
}
SECTIONS = ("Args", "Returns", "Yields", "Raises")
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def tree_of(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(inspect.getsource(importlib.import_module(module)))


def definition_of(thing: Any) -> ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef:
    """Where a class or a function is written."""
    thing = inspect.unwrap(thing)
    for node in ast.walk(tree_of(thing.__module__)):
        if isinstance(node, (ast.ClassDef, *_Function)) and node.name == thing.__name__:
            return node
    raise LookupError(f"{thing!r} is not written in {thing.__module__}")


# Docstrings.


def markdown_of(docstring: str | None) -> str:
    """A docstring of ours as Markdown: its sections become lists, its examples blocks of code."""
    lines = inspect.cleandoc(docstring or "").split("\n")
    parts: list[str] = []
    while lines:
        heading = lines[0].removesuffix(":")
        if heading in SECTIONS and lines[0].endswith(":"):
            body, lines = _until(lines[1:], lambda line: bool(line) and not line.startswith(" "))
            parts.append(_section(heading, textwrap.dedent("\n".join(body))))
        elif lines[0].startswith(">>>"):
            body, lines = _until(lines, lambda line: not line)
            parts.append("```python\n" + "\n".join(body) + "\n```")
        elif lines[0].startswith("    "):
            body, lines = _until(lines, lambda line: bool(line) and not line.startswith("    "))
            parts.append("```text\n" + textwrap.dedent("\n".join(body)).rstrip() + "\n```")
        elif lines[0]:
            body, lines = _until(lines, lambda line: not line or line.removesuffix(":") in SECTIONS)
            parts.append(_inline("\n".join(body)))
        else:
            lines = lines[1:]
    return "\n\n".join(parts)


def _until(lines: list[str], ends: Any) -> tuple[list[str], list[str]]:
    stop = next((number for number, line in enumerate(lines) if ends(line)), len(lines))
    return lines[:stop], lines[stop:]


def _section(heading: str, body: str) -> str:
    items: list[str] = []
    for line in body.strip().split("\n"):
        if items and (line.startswith(" ") or heading in ("Returns", "Yields")):
            items[-1] += f" {line.strip()}"
        elif line:
            items.append(line.strip())
    if heading in ("Returns", "Yields"):
        return f"{heading}: {_inline(items[0])}"
    named = [re.sub(r"^(\*{0,2}[\w.]+): ", r"`\1`: ", item) for item in items]
    return f"{heading}:\n\n" + "\n".join(f"- {_inline(item)}" for item in named)


def _inline(text: str) -> str:
    return re.sub(r"``([^`]+)``", r"`\1`", text)


# Signatures and members.


class _Plain(ast.NodeTransformer):
    """Leaves the checks of ``Annotated`` out."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "Annotated":
            assert isinstance(node.slice, ast.Tuple)
            return node.slice.elts[0]
        return node


def _plain(node: ast.AST) -> str:
    return ast.unparse(_Plain().visit(ast.parse(ast.unparse(node))))


def signature_of(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, *, bound: bool) -> str:
    """How a function is called; ``bound`` leaves ``self`` out."""
    arguments = ast.parse(_plain(node)).body[0].args  # type: ignore[attr-defined]
    if bound:
        (arguments.posonlyargs or arguments.args)[:1] = []
    kind = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    line = f"{kind}{name}({ast.unparse(arguments)}){returns}"
    if len(line) <= 100:
        return line
    parts = _split(ast.unparse(arguments))
    return f"{kind}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def _split(text: str) -> list[str]:
    """The parts of a list of arguments: at commas that are in no brackets."""
    parts, depth, begin, quote = [], 0, 0, ""
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "," and depth == 0:
            parts.append(text[begin:place].strip())
            begin = place + 1
        else:
            depth += (letter in "([{") - (letter in ")]}")
    return [*parts, text[begin:].strip()]


def classes_of(thing: type, documented: frozenset[type]) -> list[type]:
    """A class with those of ours that it inherits from and that have no entry of their own."""
    ours = [base for base in thing.__mro__ if base.__module__.startswith("sparkbolt.")]
    others = {above for base in ours[1:] if base in documented for above in base.__mro__}
    return [base for base in ours if base is thing or base not in others]


def members_of(node: ast.ClassDef) -> Iterator[tuple[str, ast.AST, str | None]]:
    """(name, definition, docstring) of what is public in a class."""
    body = node.body
    for place, part in enumerate(body):
        if isinstance(part, _Function) and not part.name.startswith("_"):
            yield part.name, part, ast.get_docstring(part)
        elif isinstance(part, (ast.AnnAssign, ast.Assign)):
            target = part.target if isinstance(part, ast.AnnAssign) else part.targets[0]
            following = body[place + 1] if place + 1 < len(body) else None
            said = following.value if isinstance(following, ast.Expr) else None
            text = said.value if isinstance(said, ast.Constant) and isinstance(said.value, str) else None
            if isinstance(target, ast.Name) and not target.id.startswith("_") and target.id != "model_config":
                yield target.id, part, text


def _member(name: str, part: ast.AST, text: str | None) -> str:
    if isinstance(part, _Function):
        decorators = {ast.unparse(decorator) for decorator in part.decorator_list}
        if decorators & {"property", "cached_property"}:
            returns = f": {ast.unparse(part.returns)}" if part.returns is not None else ""
            head = f"`{name}{returns}`"
        else:
            bound = "staticmethod" not in decorators
            head = signature_of(part, name, bound=bound)
            head = f"`{head}`" if "\n" not in head else f"`{name}`\n\n```python\n{head}\n```"
    else:
        head = f"`{_plain(part)}`"
    body = markdown_of(text)
    return f"#### {head}" + (f"\n\n{body}" if body else "")


def entry_of(name: str, thing: Any, documented: frozenset[type]) -> str:
    """What is said of one public name."""
    if not inspect.isclass(thing):
        if not callable(thing):
            return f"### {name}\n\n`{name} = {thing!r}`"
        node = definition_of(thing)
        assert not isinstance(node, ast.ClassDef)
        return f"### {name}\n\n```python\n{signature_of(node, name, bound=False)}\n```\n\n{markdown_of(thing.__doc__)}"
    parts = [f"### {name}", _call(name, thing, documented), markdown_of(inspect.getdoc(thing))]
    bases = [base.__name__ for base in thing.__bases__ if base in documented]
    if bases:
        parts.insert(1, f"A {' and a '.join(f'`{base}`' for base in bases)}.")
    seen: set[str] = set()
    for base in classes_of(thing, documented):
        node = definition_of(base)
        assert isinstance(node, ast.ClassDef)
        for member, part, text in members_of(node):
            if member not in seen and (text is not None or not isinstance(part, (ast.AnnAssign, ast.Assign))):
                seen.add(member)
                parts.append(_member(member, part, text or _inherited(thing, member)))
    return "\n\n".join(part for part in parts if part)


def _inherited(thing: type, member: str) -> str | None:
    found = getattr(thing, member, None)
    return inspect.getdoc(found.fget if isinstance(found, property) else found)


def _call(name: str, thing: type, documented: frozenset[type]) -> str:
    """How an instance is made, if that is for users: ``__init__`` with arguments of its own, or the fields."""
    node = definition_of(thing)
    assert isinstance(node, ast.ClassDef)
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            said = markdown_of(ast.get_docstring(part))
            return f"```python\n{signature_of(part, name, bound=True)}\n```" + (f"\n\n{said}" if said else "")
    decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
    if "dataclass" not in decorators:
        return ""
    lines: list[str] = []
    for base in reversed(classes_of(thing, documented)):
        for part in definition_of(base).body:
            if isinstance(part, ast.AnnAssign):
                by_name = ast.unparse(part.annotation) == "KW_ONLY"
                line = "*" if by_name else re.sub(r"InitVar\[(\w+)\]", r"\1", _plain(part))
                lines += [] if by_name and "*" in lines else [line]
    above = [base for base in thing.__mro__[1:] if base in documented and hasattr(base, "__dataclass_fields__")]
    lines += [f"**settings of {above[0].__name__}"] if above else []
    return f"```python\n{name}(\n" + "".join(f"    {line},\n" for line in lines) + ")\n```"


# Pages.


def exported() -> dict[str, dict[str, Any]]:
    """By page, the public names."""
    found: dict[str, dict[str, Any]] = {}
    known: set[int] = set()
    for door in DOORS:
        module = importlib.import_module(door)
        found[door] = {}
        for name in sorted(module.__all__, key=str.lower):
            thing = getattr(module, name)
            if id(thing) not in known:  # where it is exported first
                known.add(id(thing))
                found[door][name] = thing
    return found


def pages() -> dict[str, str]:
    """The text of each page, by its file's name."""
    names = exported()
    documented = frozenset(thing for own in names.values() for thing in own.values() if inspect.isclass(thing))
    texts = {}
    for page, own in names.items():
        others = " · ".join(f"[`{other}`]({other}.md)" for other in names if other != page)
        entries = [entry_of(name, thing, documented) for name, thing in own.items()]
        made = "Made from the docstrings by `python -m docs.reference`."
        head = (
            f"# `{page}`\n\n{DOORS[page]} {made}\n\nThe other pages: {others}. What none of them names is not public."
        )
        anchors = {heading: anchor for anchor, heading in anchors_of("\n\n".join((head, *entries))).items()}
        listed = " · ".join(f"[{name}](#{anchors[name]})" for name in own)
        texts[f"{page}.md"] = "\n\n".join((head, listed, *entries)) + "\n"
    return {name: re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE) for name, text in texts.items()}


def main() -> None:
    """Write all pages."""
    PAGES.mkdir(exist_ok=True)
    texts = pages()
    for old in PAGES.glob("*.md"):
        if old.name not in texts:
            old.unlink()
    for name, text in texts.items():
        (PAGES / name).write_text(text, encoding="utf-8")
        print(PAGES / name)


if __name__ == "__main__":
    main()
