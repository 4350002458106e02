"""Serving: ``sparkbolt ui``, and ``run --ui``.

Without the packages of the user interface every other command works.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

from sparkbolt.control.kept_state import KeptState
from sparkbolt.control.parameters import Parameter
from sparkbolt.errors import SparkboltError, WrongUseError
from sparkbolt.faces.cli.program import EXIT_FINISHED
from sparkbolt.spark.checkpoint_files import open_files

PORT = 8088


class MissingPackageError(SparkboltError):
    """A command needs packages that are not installed."""


def ui(
    *,
    home: str | None = None,
    port: Annotated[int, Parameter(highest=65_535)] = PORT,
    host: str = "127.0.0.1",
    checkpoint: Sequence[str] = (),
    private: bool = False,
    allow_host: Sequence[str] = (),
) -> int:
    """Serve the user interface and the REST interface.

    Args:
        home: the directory in which topologies are registered (default: SPARKBOLT_HOME, or ~/.local/state/sparkbolt).
        port: the port (default: 8088; 0: any free port).
        host: the address to listen at (default: 127.0.0.1).
        checkpoint: also show the topology of this checkpoint, which may have ended (repeatable).
        private: require a login for every page, with the token in the link that this command prints.
        allow_host: another host name that browsers may use for this server (repeatable).

    Raises:
        MissingPackageError: a package of the user interface is not installed.
        WrongUseError: the port cannot be listened at.
    """
    serve = _serve()
    try:
        serve(
            host=host,
            port=port,
            home=home,
            checkpoints=checkpoint,
            open_files=open_files,
            read_state=_read_state,
            private=private,
            allowed_hosts=allow_host,
        )
    except OSError as error:
        raise WrongUseError(
            f"the user interface cannot listen at {host}:{port}: {error.strerror}; use another --port or --host"
        ) from None
    except KeyboardInterrupt:
        pass
    return EXIT_FINISHED


def serve_beside(say: Callable[[str], None]) -> None:
    """Serve the user interface in a thread of this process, until it ends, and say where it is.

    It listens at the usual port, or at any free one if that is taken.

    Raises:
        MissingPackageError: a package of the user interface is not installed.
        SparkboltError: it cannot be served.
    """
    serve, told = _serve(), queue.SimpleQueue[str | Exception]()

    def run() -> None:
        try:
            try:
                serve(port=PORT, open_files=open_files, read_state=_read_state, say=told.put)
            except OSError:
                serve(port=0, open_files=open_files, read_state=_read_state, say=told.put)
        except Exception as error:  # noqa: BLE001  the thread that waits raises it
            told.put(error)

    threading.Thread(target=run, name="sparkbolt-ui", daemon=True).start()
    first = told.get()
    if isinstance(first, SparkboltError):
        raise first
    if isinstance(first, Exception):
        raise WrongUseError(f"the user interface cannot be served: {first}")
    say(first)


def _serve() -> Any:
    try:
        return import_module("sparkbolt.faces.ui").serve
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"sparkbolt ui needs the package {error.name!r}, which is not installed: pip install {error.name}"
        ) from None


def _read_state(directory: str, as_of: int | None) -> KeptState:
    """Read the state in a checkpoint; the first call starts a Spark in this process."""
    from sparkbolt.spark.state_reading import StoredState

    return StoredState.of(directory, as_of)
