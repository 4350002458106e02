"""Serving: ``sparkbolt ui``.

Rule: its packages are an extra; without them every other command works. It is apart from ``actions``, because it knows
what the server may raise.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from sparkbolt.errors import SparkboltError, WrongUseError
from sparkbolt.faces.cli.program import EXIT_FINISHED
from sparkbolt.spark.checkpoint_files import open_files


class MissingPackageError(SparkboltError):
    """A command needs packages that are not installed."""


def ui(options: argparse.Namespace) -> int:
    """Serve the user interface and REST until Ctrl-C.

    Raises:
        MissingPackageError: the extra ``ui`` is not installed.
        WrongUseError: the port cannot be listened at.
    """
    try:
        serve: Any = import_module("sparkbolt.faces.ui").serve
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"sparkbolt ui needs the package {error.name!r}, which is not installed: pip install 'sparkbolt[ui]'"
        ) from None
    try:
        serve(
            host=options.host,
            port=options.port,
            home=options.home,
            checkpoints=options.checkpoint,
            open_files=open_files,
            private=options.private,
            allowed_hosts=options.allow_host,
        )
    except OSError as error:
        raise WrongUseError(
            f"the user interface cannot listen at {options.host}:{options.port}: {error.strerror}; use another --port "
            "or --host"
        ) from None
    except KeyboardInterrupt:
        pass
    return EXIT_FINISHED
