"""The ``Operator`` that commands ask, and the user in whose name they ask.

Commands ask nothing else.
"""

from __future__ import annotations

import getpass
import sys
import time
from typing import Any

from sparkbolt.control.documents import Answer
from sparkbolt.control.operator import Operator
from sparkbolt.faces.cli.program import EXIT_FAILED, EXIT_FINISHED
from sparkbolt.faces.cli.texts import plain


def operator_of(home: str | None, client_config: str | None = None) -> Operator:
    """The operator of a home; ``client_config`` is a file with properties of Kafka's client."""
    from sparkbolt.spark.checkpoint_files import open_files

    return Operator(home, open_files=open_files, client_config=client_config)


def by() -> str:
    """The user of this process, who asks."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


def now_ms() -> int:
    """The time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def told(answer: Answer) -> int:
    """Print the answer to a request, and return the exit code: 1 if it was refused."""
    if answer["refused"]:
        print(f"sparkbolt: {plain(answer['text'])}", file=sys.stderr)
        return EXIT_FAILED
    print(plain(answer["text"]))
    return EXIT_FINISHED


def as_json(value: Any) -> str:
    """A document as JSON on one line."""
    import json

    return json.dumps(value)
