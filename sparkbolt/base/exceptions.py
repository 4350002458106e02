"""Exceptions of user code as text: how a story, the log and a dead letter describe them.

A text is short and can be encoded as UTF-8, even if the exception or the value raises when it is printed.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkbolt.base.tracebacks import OURS, lines_of
from sparkbolt.errors import CheckpointError, InvariantError, PrepareError, SparkboltError, Unavailable

TRACEBACK_CHARACTERS_MAX = 4000
CAUSES_MAX = 20
"""How many causes of an exception of the JVM are followed."""
REASON_CHARACTERS_MAX = 2000
"""A limit, since an exception's text may contain the whole message, and is stored in the ledger's log, in plans and in
dead letters."""
_NOTE = "raised by "
_process: int | None = None
"""Id of the process in which user code is called; None until ``own_process`` sets it."""


class Interruption(BaseException):
    """Ends the process that runs user code; the simulator raises it where a process dies."""


def reason_of(thing: Any) -> tuple[str, str | None]:
    """Return the reason that was given to a collector as text, and the traceback if it is an exception with one.

    A str is returned whole. A value of any other type is shown by its ``repr``; None gives an empty text.
    """
    if isinstance(thing, str):
        return printable(thing), None
    if isinstance(thing, BaseException):
        return line_of(thing), text_of(thing) if thing.__traceback__ is not None else None
    return ("", None) if thing is None else (printed(thing), None)


def line_of(error: BaseException) -> str:
    """Return the type of the exception and the first line of its text; of a ``SparkboltError``, only its whole text."""
    try:
        text = printable(str(error))
    except BaseException as raised:  # noqa: BLE001  user code may raise anything, here too
        pass_on(raised)
        text = "<its text raises>"
    if isinstance(error, SparkboltError):
        return text
    text = text.strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def cause_in_jvm(error: BaseException) -> str | None:
    """Return the text of the innermost cause of an exception of the JVM; None for any other exception.

    py4j gives the exception as ``java_exception``; its own text names the call that failed, and not why.
    """
    cause: Any = getattr(error, "java_exception", None)
    if cause is None:
        return None
    for _ in range(CAUSES_MAX):
        if cause.getCause() is None:
            break
        cause = cause.getCause()
    return printable(str(cause.toString()).partition("\n")[0])


def text_of(error: BaseException) -> str:
    """Return the exception with the last part of its traceback, at most ``TRACEBACK_CHARACTERS_MAX`` characters.

    Sparkbolt's own frames are folded (``tracebacks``).
    """
    try:
        return printable("".join(lines_of(error))[-TRACEBACK_CHARACTERS_MAX:])
    except BaseException as raised:  # noqa: BLE001  the text of an exception is made by user code
        pass_on(raised)
        return f"{line_of(error)} (its traceback cannot be printed: {type(raised).__name__})"


def printed(value: Any) -> str:
    """Return the ``repr`` of a value, shortened; a ``repr`` that raises is described instead.

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
    r"""Return the text as a plain ``str`` that UTF-8 can encode: lone surrogates are escaped.

    >>> printable("a" + chr(0xD800))
    'a\\ud800'
    """
    return str.encode(text, "utf-8", "backslashreplace").decode()


def end_if_forked(process: int) -> None:
    """End this process if it is a child of the one with this id.

    It is called where user code returns or raises. If user code has forked, its child arrives here too; Sparkbolt's
    own code must not run twice, so the child ends at once, without running the exit handlers of its parent.
    """
    if os.getpid() != process:
        os._exit(1)


def own_process() -> None:
    """Note that user code is called in this process; ``pass_on`` ends a forked child of it that raises."""
    global _process
    _process = os.getpid()


def pass_on(error: BaseException) -> None:
    """Raise the exception again if it must not be handled as the failure of a tuple.

    Ctrl-C ends the program, and an ``Interruption`` ends the process; no other exception of user code ends either.
    """
    if _process is not None:
        end_if_forked(_process)
    if isinstance(error, KeyboardInterrupt | Interruption):
        raise error


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Add a note to an exception of user code that names the component and the line; its type does not change.

    A ``SparkboltError`` gets no note, because its text names the component already. ``sys.exit`` in user code is
    handled like an exception: other components use the same process, so it must not end.

    Raises:
        RuntimeError: user code called ``sys.exit``.

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
        if note not in getattr(error, "__notes__", ()):  # the same object may be raised repeatedly
            error.add_note(note)
        raise


def line_and_owner(error: BaseException) -> str:
    """Return the exception in one line, with the note of ``user_code`` on which component raised it.

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
    """Turn an exception that a component raises before its first tuple into one that names the component and the line.

    ``Unavailable`` is raised unchanged, and so is ``CheckpointError``, which stops the topology: a component raises it
    if another checkpoint owns what it writes to. The meaning of any other exception for the tuples is read from the
    cause (``failure_of``).

    Raises:
        PrepareError: user code raised, or called ``sys.exit``.
        Unavailable, CheckpointError: user code raised it.

    >>> with preparing("prepare of 'count'"):
    ...     open("/no/such/file")
    Traceback (most recent call last):
    sparkbolt.errors.PrepareError: prepare of 'count' raised FileNotFoundError: [Errno 2] No such file or directory: ...
    """
    try:
        yield
    except (Unavailable, CheckpointError, InvariantError):
        raise
    except BaseException as error:
        pass_on(error)
        kind = f"{type(error).__name__}: " if isinstance(error, SparkboltError) else ""
        raise PrepareError(f"{what} raised {kind}{line_of(error)}{_came_through(error)[1]}") from error


def raised_by(part: str, error: BaseException) -> str:
    """Return one line on an exception raised by a part of a component: the method, the part, and the place."""
    method, place = _came_through(error)
    return f"{method + ', ' if method else ''}{part}{',' if method else ''} raised {line_of(error)}{place}"


def raised_at(error: BaseException, *libraries: str) -> str:
    """Return the file and line in which an exception left user code, in parentheses; "" without user code.

    Args:
        error: the exception.
        libraries: folders of code that is not the user's either.
    """
    others = tuple(os.path.join(folder, "") for folder in (str(OURS), *libraries))
    places = [place for place in traceback.extract_tb(error.__traceback__) if not place.filename.startswith(others)]
    return f" ({places[-1].filename}, line {places[-1].lineno})" if places else ""


def _came_through(error: BaseException) -> tuple[str, str]:
    """Return the user's method that raised, the last one that Sparkbolt's code called, and its file and line."""
    last, is_called = ("", ""), True
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        is_ours = path.is_relative_to(OURS)
        if is_called and not is_ours:
            last = frame.f_code.co_qualname.rpartition("<locals>.")[2], f", at {path.name}:{line}"
        is_called = is_ours
    return last
