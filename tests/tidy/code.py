"""Rules for Python files: docstrings, sizes, words, and tests that wait for something instead of sleeping."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.repo import Source, Violation

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

# path -> why it reads better in one piece
LONG_MODULES: dict[str, str] = {}
# path::Class.function -> why it reads better in one piece
LONG_FUNCTIONS: dict[str, str] = {}

# What a name outside sparkbolt/spark/ must not be, and what to call it. Only names that a module gives are
# looked at: the methods and arguments of other libraries are called what they are called.
WORDS = {
    "batch_id": "micro_batch_id",
    "epoch_id": "micro_batch_id",
    "partition": "spark_partition or kafka_partition",
    "partitions": "spark_partitions or kafka_partitions",
    "partition_id": "spark_partition or kafka_partition",
    "num_partitions": "spark_partitions or kafka_partitions",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def check_docstring(source: Source) -> Iterator[Violation]:
    """Every module that is not empty says what it is for."""
    if source.text.strip() and not ast.get_docstring(source.tree):
        mend = "open it with a docstring: which question it answers, which rule it keeps, what to read before"
        yield source.violation(1, "a module without a docstring", mend)


def check_module_size(source: Source) -> Iterator[Violation]:
    """A module stays short enough to be read in one go."""
    count = source.text.count("\n")
    if count > MODULE_LINES_MAX and source.path not in LONG_MODULES:
        mend = "split it by question, or enter it in LONG_MODULES with the reason why it reads better whole"
        yield source.violation(MODULE_LINES_MAX + 1, f"{count} lines; a module has {MODULE_LINES_MAX} at most", mend)


def functions_of(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """All functions with their qualified names, methods and inner functions too."""

    def visit(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    yield name, child
                yield from visit(child, f"{name}.")
            else:
                yield from visit(child, prefix)

    return visit(tree, "")


def function_lines(function: Function) -> int:
    """Lines of a function without its docstring: a contract may be long, the code under it fits a screen."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        doc = function.body[0]
        lines -= (doc.end_lineno or doc.lineno) - doc.lineno + 1
    return lines


def check_function_sizes(source: Source) -> Iterator[Violation]:
    """A function fits a screen."""
    for name, function in functions_of(source.tree):
        lines = function_lines(function)
        if lines > FUNCTION_LINES_MAX and f"{source.path}::{name}" not in LONG_FUNCTIONS:
            what = f"{name} has {lines} lines; a function has {FUNCTION_LINES_MAX} at most beside its docstring"
            mend = "give its steps names of their own, or enter it in LONG_FUNCTIONS with the reason"
            yield source.violation(function.lineno, what, mend)


def check_sleeps(source: Source) -> Iterator[Violation]:
    """No test sleeps: it would be slow where it need not be and fail where the machine is slower."""
    mend = "hand the test a clock, or wait for the thing itself (an event, a queue, await_idle) with a limit"
    from_time = {
        alias.asname or alias.name
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
        if alias.name == "sleep"
    }
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        dotted = isinstance(called, ast.Attribute) and ast.unparse(called) == "time.sleep"
        if dotted or (isinstance(called, ast.Name) and called.id in from_time):
            yield source.violation(node.lineno, "a test calls time.sleep", mend)


def given_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """All names that a module gives: functions, classes, arguments, variables, attributes, aliases."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.alias() if node.asname:
                yield node.asname, node.lineno
            case _:
                pass


def check_words(source: Source) -> Iterator[Violation]:
    """An unqualified word is Storm's; Spark's and Kafka's words carry a prefix (the table of words)."""
    if source.path.startswith("sparkbolt/spark/"):
        return
    for name, line in given_names(source.tree):
        if name in WORDS:
            mend = f"one word, one meaning: call it {WORDS[name]}"
            yield source.violation(line, f"the name {name} outside sparkbolt/spark/", mend)
