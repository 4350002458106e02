"""Tracebacks for people: shows the user's frames, and folds Sparkbolt's frames into one line.

A possible defect of Sparkbolt is shown in full: an exception that passed through no code of the user's, and is neither
a ``SparkboltError`` nor a ``ValueError``. With ``SPARKBOLT_DEBUG=1`` everything is shown.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import wraps
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from sparkbolt.errors import SparkboltError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
DEBUG_ENV = "SPARKBOLT_DEBUG"
FRAMES_MAX = 30
"""How many frames of an exception are shown, the innermost; an exception object that is raised repeatedly collects the
frames of each time."""
FRAMES_READ_MAX = 300
"""How many frames of an exception are read."""
CHAIN_MAX = 20
"""How many causes of an exception are followed."""
OURS = Path(__file__).parents[1]
_OURS = (f"{OURS}{os.sep}", "sparkbolt_fast")
_LIBRARY = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")})
_INSTALLED = ("site-packages", "dist-packages")
_BRIDGES = tuple(os.path.join("", name, "") for name in ("pyspark", "py4j", "cloudpickle"))
_FOLDED = "<folded>"
_HEAD = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "(.+)", line (\d+)', re.MULTILINE)


class _Owner(Enum):
    OURS = 1
    BETWEEN = 2
    """The standard library or PySpark: folded where it is between Sparkbolt's frames."""
    OTHER = 3


def is_debugging() -> bool:
    """Whether ``SPARKBOLT_DEBUG`` asks for everything."""
    return os.environ.get(DEBUG_ENV, "0") not in ("", "0")


def is_ours(path: str) -> bool:
    """Whether a file is a part of Sparkbolt."""
    return path.startswith(_OURS) or f"{os.sep}sparkbolt_fast{os.sep}" in path


def lines_of(error: BaseException) -> list[str]:
    """Return the traceback of an exception for people, as lines that end with a line feed."""
    if is_debugging() or _may_be_defect(error):
        return list(TracebackException.from_exception(error, limit=-FRAMES_MAX, compact=True).format())
    whole = TracebackException.from_exception(error, limit=-FRAMES_READ_MAX, lookup_lines=False, compact=True)
    _fold_chain(whole)
    return list(whole.format())


def place_in(text: str | None) -> str:
    r"""Return the line of the user's code that Sparkbolt called, from the text of a traceback; "" if it has none.

    >>> place_in('Traceback (most recent call last):\n  File "words.py", line 7, in execute\n    int("n/a")\n')
    ', at words.py:7'
    """
    last = (text or "").rpartition(_HEAD)[2]
    for path, line in _FRAME.findall(last):
        if _owner_of(path) is _Owner.OTHER and not _is_installed(path):
            return f", at {os.path.basename(path)}:{line}"
    return ""


def fold(error: BaseException) -> None:
    """Remove Sparkbolt's frames from the traceback of an exception that is raised to the user, and from its chain."""
    if is_debugging() or _may_be_defect(error):
        return
    link: BaseException | None = error
    for _ in range(CHAIN_MAX):
        if link is None:
            return
        cause, context = _users(link.__cause__), _users(link.__context__)
        if cause is not link.__cause__:
            link.__cause__ = cause
        if context is not link.__context__:
            link.__context__ = context
        link.__traceback__ = _without_ours(link.__traceback__)
        link = cause or context


class Folding:
    """A block whose exceptions reach the user without Sparkbolt's frames."""

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Fold the traceback of the exception, which is raised on."""
        if error is not None:
            fold(error)


def folded(act: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function for the user to call, with the behavior of ``act``; its exceptions are folded."""

    @wraps(act)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        __tracebackhide__ = True  # for pytest
        with Folding():
            return act(*arguments, **options)

    return call


def _owner_of(path: str) -> _Owner:
    if is_ours(path):
        return _Owner.OURS
    if path.startswith("<frozen ") or any(bridge in path for bridge in _BRIDGES):
        return _Owner.BETWEEN
    return _Owner.BETWEEN if path.startswith(_LIBRARY) and not _is_installed(path) else _Owner.OTHER


def _is_installed(path: str) -> bool:
    return any(f"{os.sep}{name}{os.sep}" in path for name in _INSTALLED)


def _are_folded(paths: Sequence[str]) -> list[bool]:
    """Whether each of some consecutive frames, from the outermost on, is folded; by the paths of their files."""
    owners = [_owner_of(path) for path in paths]
    folded, of_user = [], False
    last = max((place for place, owner in enumerate(owners) if owner is not _Owner.BETWEEN), default=-1)
    for place, owner in enumerate(owners):
        if owner is not _Owner.BETWEEN:
            of_user = owner is _Owner.OTHER
        folded.append(not of_user and place <= last)
    return folded


def _is_users(paths: Sequence[str]) -> bool:
    """Whether an exception with these frames passed through the user's code; one without frames is the user's."""
    return not paths or any(_owner_of(path) is _Owner.OTHER for path in paths)


class _Stack(StackSummary):
    """A stack in which one frame may represent several folded ones."""

    def format_frame_summary(self, frame_summary: FrameSummary, **options: Any) -> str:
        if frame_summary.filename != _FOLDED:
            return super().format_frame_summary(frame_summary, **options)
        count = frame_summary.lineno
        return f"  ... {count} frame{'s' if count != 1 else ''} of sparkbolt ({DEBUG_ENV}=1 shows all)\n"


def _fold_chain(whole: TracebackException) -> None:
    """Fold an exception and the exceptions that it is chained to, in place."""
    waiting, count = [whole], 0
    while waiting and count < 2 * CHAIN_MAX:
        link = waiting.pop()
        count += 1
        chained = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        shown = _users_summary(chained)
        if link.__cause__ is not None:
            link.__cause__ = shown
        link.__context__ = None if link.__cause__ is not None else shown
        paths = [frame.filename for frame in link.stack]
        if shown is not None and link is whole and not _is_users(paths):
            link.stack = None  # type: ignore[assignment]  # only its text is shown
        else:
            link.stack = _folded(link.stack, paths)
        waiting += [*([shown] if shown is not None else []), *(getattr(link, "exceptions", None) or ())]


def _users_summary(link: TracebackException | None) -> TracebackException | None:
    """Return the first exception of a chain that went through the user's code."""
    for _ in range(CHAIN_MAX):
        if link is None or _is_users([frame.filename for frame in link.stack]):
            return link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return None


def _folded(stack: StackSummary, paths: Sequence[str]) -> StackSummary:
    shown: list[FrameSummary] = []
    count = 0
    for frame, is_folded in zip(stack, _are_folded(paths), strict=True):
        if is_folded:
            count += 1
            continue
        shown += [*_fold_line(count), frame]
        count = 0
    shown += _fold_line(count)
    return _Stack(shown[-FRAMES_MAX:])


def _fold_line(count: int) -> Iterator[FrameSummary]:
    if count:
        yield FrameSummary(_FOLDED, count, "", lookup_line=False, line="")


def _may_be_defect(error: BaseException) -> bool:
    return not isinstance(error, SparkboltError | ValueError) and _users(error) is None


def _users(link: BaseException | None) -> BaseException | None:
    for _ in range(CHAIN_MAX):
        if link is None or _is_users(_paths(link.__traceback__)):
            return link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return None


def _paths(traceback: TracebackType | None) -> list[str]:
    return [frame.tb_frame.f_code.co_filename for frame in _frames(traceback)]


def _frames(traceback: TracebackType | None) -> list[TracebackType]:
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    return frames


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    frames = _frames(traceback)
    shown: TracebackType | None = None
    for frame, is_folded in reversed(list(zip(frames, _are_folded(_paths(traceback)), strict=True))):
        if not is_folded:
            shown = TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return shown
