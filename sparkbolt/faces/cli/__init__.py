"""Command line: the command ``sparkbolt``.

A user's mistake is reported as one sentence on standard error, without a traceback; ``--debug`` or
``SPARKBOLT_DEBUG=1`` shows the traceback.

Exit codes: 0 finished, or stopped with nothing left; 3 the same, but messages were given up; 1 failed, or refused; 2
wrong use, such as an unknown name; 4 the time of ``--for`` expired or it was killed, and 130 stopped by Ctrl-C. With 4
and 130 open trees, or records that failed, are left for replay. A run also fails if the reader of its output has closed
it. ``kill --wait`` ends with 0 if the topology has ended with nothing left, otherwise with 4.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import TextIO

from sparkbolt.base.tracebacks import is_debugging
from sparkbolt.errors import SparkboltError, WrongUseError
from sparkbolt.faces.cli.parser import parser
from sparkbolt.faces.cli.program import EXIT_FAILED, EXIT_FINISHED, EXIT_LEFT, EXIT_WRONG_USE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; without arguments, print the help."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = parser(given).parse_args(given or ["--help"])
        options.given = given
    except SystemExit as exit_:  # argparse has printed the error
        return exit_.code if isinstance(exit_.code, int) else EXIT_WRONG_USE
    code: int = EXIT_FINISHED
    try:
        code = options.act(options)
        sys.stdout.flush()
        return code
    except SparkboltError as error:
        return _complain(error, EXIT_WRONG_USE if isinstance(error, WrongUseError) else EXIT_FAILED, options.debug)
    except KeyboardInterrupt:
        return EXIT_LEFT
    except BrokenPipeError:  # the reader of the output has closed it
        return code
    except Exception as error:  # noqa: BLE001  any other error: a sentence, and how to see the traceback
        return _complain(error, EXIT_FAILED, options.debug)
    finally:
        for stream in (sys.stdout, sys.stderr):
            _leave_closed(stream)


def _leave_closed(stream: TextIO) -> None:
    """Let nothing more be written to an output that its reader has closed; Python would end with exit code 120."""
    try:
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _complain(error: Exception, code: int, debug: bool) -> int:
    if debug or is_debugging():
        traceback.print_exception(error)
        return code
    text = str(error) if isinstance(error, SparkboltError) else f"{type(error).__name__}: {error}"
    more = "" if isinstance(error, SparkboltError) else " (--debug shows the traceback)"
    print(f"sparkbolt: {text}{more}", file=sys.stderr)
    return code
