"""Exceptions of user code as text: what a story, the log and a dead letter say of them.

Which question it answers: what was raised, whose is it, and where?
Rule 1: it stays small, and is plain text that can be written anywhere, whatever user code has put into it.
Rule 2: nothing here raises, whatever an exception, a reason or a value does when it is printed.
Rule 3: Ctrl-C ends the program, and what is an ``Interruption`` ends the process; whatever else leaves user code does
not.

Read before: nothing.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkbolt.errors import PrepareError, SparkboltError

TRACEBACK_CHARACTERS_MAX = 4000
TRACEBACK_FRAMES_MAX = 30
"""The innermost ones: an exception that is raised again and again gathers those of each time."""
REASON_CHARACTERS_MAX = 2000
"""An exception's text may hold the whole message; it goes into the ledger's log, into plans and into dead letters."""
_OURS = Path(__file__).parents[2]
_NOTE = "raised by "
_process: int | None = None
"""That in which user code is called, where somebody has said it."""


class Interruption(BaseException):
    """The process that runs user code ends here: what simulates the death of a process raises it."""


def said(thing: Any) -> tuple[str, str | None]:
    """A text or an exception, as it is given to a collector, in a line; with the traceback that an exception has.

    Anything else is shown as it prints; nothing, as an empty text.
    """
    if isinstance(thing, str):
        return printable(thing), None
    if isinstance(thing, BaseException):
        return line_of(thing), text_of(thing) if thing.__traceback__ is not None else None
    return ("", None) if thing is None else (printed(thing), None)


def line_of(error: BaseException) -> str:
    """The exception in a line: its type, unless it is one of ours, and the first line of its text."""
    try:
        text = printable(str(error))
    except BaseException as raised:  # noqa: BLE001  user code may raise anything, here too
        pass_on(raised)
        text = "<its text raises>"
    if isinstance(error, SparkboltError):
        return text
    text = text.strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """The exception with the end of its traceback."""
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-TRACEBACK_FRAMES_MAX)
        return printable("".join(lines)[-TRACEBACK_CHARACTERS_MAX:])
    except BaseException as raised:  # noqa: BLE001  what an exception says of itself is user code
        pass_on(raised)
        return f"{line_of(error)} (its traceback cannot be printed: {type(raised).__name__})"


def printed(value: Any) -> str:
    """How a value prints, shortened; never raises.

    >>> class Odd:
    ...     def __repr__(self):
    ...         raise ValueError
    >>> printed(Odd()), printed(3)
    ('<Odd whose repr raised ValueError>', '3')
    """
    try:
        text = printable(repr(value))
    except BaseException as error:  # noqa: BLE001  user code may raise anything
        pass_on(error)
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= REASON_CHARACTERS_MAX else f"{text[: REASON_CHARACTERS_MAX - 3]}..."


def printable(text: str) -> str:
    r"""A text of the type ``str`` itself that every encoding for text can write: lone surrogates are escaped.

    >>> printable("a" + chr(0xD800))
    'a\\ud800'
    """
    return str.encode(text, "utf-8", "backslashreplace").decode()


def end_if_forked(process: int) -> None:
    """End this process if it is a child of the one with this id.

    User code has forked, and its child has come back from it, by returning or raising: nothing of Sparkbolt's may be
    done twice, so the child ends here, without handlers that are its parent's.
    """
    if os.getpid() != process:
        os._exit(1)


def own_process() -> None:
    """From now on this is the process that user code is called in: a child of it that raises ends (``pass_on``)."""
    global _process
    _process = os.getpid()


def pass_on(error: BaseException) -> None:
    """Raise what is no affair of a tuple; see rule 3."""
    if _process is not None:
        end_if_forked(_process)
    if isinstance(error, KeyboardInterrupt | Interruption):
        raise error


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """An exception that leaves user code has a note of whose it is, and keeps its type; errors of ours say it already.

    ``sys.exit`` in user code is an exception like any other, and not the end of a process that others use.

    Raises:
        RuntimeError: it has exited.

    >>> import sys
    >>> with user_code("committed of 'numbers'"):
    ...     sys.exit(3)
    Traceback (most recent call last):
    RuntimeError: committed of 'numbers' raised SystemExit: 3
    """
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"{what} raised {line_of(error)}") from error
    except SparkboltError:
        raise
    except Exception as error:
        note = f"{_NOTE}{what}{_came_through(error)[1]}"
        if note not in getattr(error, "__notes__", ()):  # one that is raised again and again
            error.add_note(note)
        raise


def line_and_owner(error: BaseException) -> str:
    """The exception in a line, with whose it is as ``user_code`` has noted.

    >>> try:
    ...     with user_code("next_ranges of 'numbers'"):
    ...         open("/no/such/file")
    ... except OSError as error:
    ...     print(line_and_owner(error))
    FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file', raised by next_ranges of 'numbers', at ...
    """
    notes = [note for note in getattr(error, "__notes__", ()) if str(note).startswith(_NOTE)]
    return ", ".join([line_of(error), *notes[-1:]])


@contextmanager
def preparing(what: str) -> Iterator[None]:
    """What a component raises before its first tuple says whose it is, and where; errors of ours say it themselves.

    Raises:
        PrepareError: it has raised, or exited.

    >>> with preparing("prepare of 'count'"):
    ...     open("/no/such/file")
    Traceback (most recent call last):
    sparkbolt.errors.PrepareError: prepare of 'count' raised FileNotFoundError: [Errno 2] No such file or directory: ...
    """
    try:
        yield
    except SparkboltError:
        raise
    except BaseException as error:
        pass_on(error)
        raise PrepareError(f"{what} raised {line_of(error)}{_came_through(error)[1]}") from error


def raised_by(part: str, error: BaseException) -> str:
    """A line for an exception of user code that is a part of a component: its method, whose it is, and where."""
    method, place = _came_through(error)
    return f"{method + ', ' if method else ''}{part}{',' if method else ''} raised {line_of(error)}{place}"


def _came_through(error: BaseException) -> tuple[str, str]:
    """The method of user code that was called last by code of ours and raised, and its line."""
    found, is_called = ("", ""), True
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        is_ours = path.is_relative_to(_OURS)
        if is_called and not is_ours:
            found = frame.f_code.co_qualname.rpartition("<locals>.")[2], f", at {path.name}:{line}"
        is_called = is_ours
    return found
