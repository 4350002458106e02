"""Serving: ``sparkbolt ui``.

Its packages are an extra; without them every other command works.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

from sparkbolt.control.kept_state import KeptState
from sparkbolt.control.parameters import Parameter
from sparkbolt.errors import SparkboltError, WrongUseError
from sparkbolt.faces.cli.program import EXIT_FINISHED
from sparkbolt.spark.checkpoint_files import open_files


class MissingPackageError(SparkboltError):
    """A command needs packages that are not installed."""


def ui(
    *,
    home: str | None = None,
    port: Annotated[int, Parameter(highest=65_535)] = 8088,
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


def _read_state(directory: str, as_of: int | None) -> KeptState:
    """Read the state in a checkpoint; the first call starts a Spark in this process."""
    from sparkbolt.spark.state_reading import StoredState

    return StoredState.of(directory, as_of)
