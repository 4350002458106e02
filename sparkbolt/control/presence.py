"""Presence: registration, control socket and beats of a running topology, from its start to its end.

Nothing here fails a topology: if the home cannot be written to, or the socket cannot be made, that is logged, and the
topology runs without it. The process ends only after the entry says how the topology ended.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

from sparkbolt.base.exceptions import line_of
from sparkbolt.control.control import CONTROL_ENV, ControlServer, tcp_address
from sparkbolt.control.documents import TopologyEntry, TopologyState
from sparkbolt.control.home import Home, entry_with
from sparkbolt.control.operable import Operable
from sparkbolt.control.registration import News, Registration, first_entry
from sparkbolt.control.steering import Steering
from sparkbolt.errors import SparkboltError

log = logging.getLogger("sparkbolt")


class Presence:
    """One topology in this process, for observers outside."""

    def __init__(
        self, name: str, checkpoint: str | None, *, directory: str | None = None, log_directory: str | None = None
    ) -> None:
        """Register a topology that starts now.

        Args:
            name: the topology's.
            checkpoint: its path or URL; None if it is temporary.
            directory: where the files of a temporary checkpoint are.
            log_directory: where its log goes, if it goes to files.
        """
        self.steering: Steering | None = None
        self._server: ControlServer | None = None
        self._registration: Registration | None = None
        self._log_directory = log_directory
        try:
            self._home = Home()
            entry = first_entry(
                self._home,
                name,
                checkpoint=checkpoint,
                directory=directory,
                command=_command(),
                now_ms=time.time_ns() // 1_000_000,
            )
            entry["log_directory"] = log_directory
            self._registration = Registration(self._home, entry, self._news)
            self._registration.begin()
        except Exception as error:  # noqa: BLE001  operators never fail a topology
            log.warning("topology %r is not registered: %s", name, _text(error))

    @property
    def entry(self) -> TopologyEntry | None:
        """The last written entry; None if the topology is not registered."""
        return self._registration.entry if self._registration is not None else None

    def attach(self, operable: Operable, folder: str | None = None) -> Steering:
        """Let operators steer a topology that is about to process: their earlier requests apply from now on.

        Args:
            operable: the topology.
            folder: a private folder for the socket, if its path is short enough; None: one is made.

        Raises:
            SparkboltError: earlier requests cannot apply, since the topology was stopped meanwhile.
        """
        steering = Steering(operable, entry=lambda: self.entry or _unregistered(operable))
        steering.apply_first()
        self.steering = steering
        steering.begin()
        self._serve(steering, folder)
        registration = self._registration
        if registration is not None:
            steering.listeners.append(registration.beat_now)
            registration.beat_now()
        return steering

    def _serve(self, steering: Steering, folder: str | None) -> None:
        wanted = os.environ.get(CONTROL_ENV, "").strip()
        if wanted == "off":
            return
        try:
            self._server = self._server_at(wanted, steering, folder)
        except (OSError, SparkboltError) as error:
            log.warning("control at %s cannot be opened (%s): using a local socket", wanted, _text(error))
            try:
                self._server = ControlServer(steering.ask, folder=folder)
            except (OSError, SparkboltError) as worse:
                log.warning("operators cannot change the topology: %s", _text(worse))

    def _server_at(self, wanted: str, steering: Steering, folder: str | None) -> ControlServer:
        address = tcp_address(wanted)
        if address is None:
            return ControlServer(steering.ask, folder=folder)
        entry = self.entry
        token = self._home.write_token(entry["id"]) if entry is not None else os.environ.get("SPARKBOLT_TOKEN")
        return ControlServer(steering.ask, tcp=address, token=token)

    def _news(self) -> News:
        if self.steering is None:
            return News()
        server = self._server
        return {**self.steering.news(), "control": server.address if server is not None else None}

    def ended(self, state: TopologyState, why: str | None, *, drained: bool | None = None) -> None:
        """Stop being steered, and register how the topology ended, and whether nothing was under way any more."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        gist = None
        if self.steering is not None:
            gist = self.steering.last_gist()
            words = {TopologyState.FAILED: "failed"}
            self.steering.note(words.get(state, "stopped"), why or "it has ended")
            self.steering.end()
        if self._registration is not None:
            self._registration.end(state, why, gist=gist, drained=drained)
            try:
                if server is not None and server.address.startswith("tcp:"):
                    self._home.remove_token(self._registration.entry["id"])
            except Exception as error:  # noqa: BLE001  operators never fail a topology
                log.debug("a token cannot be removed: %s", _text(error))

    def exits(self, exit_code: int) -> None:
        """Register the exit code with which the process will end."""
        if self._registration is not None:
            entry = self._registration.entry
            self._registration.end(TopologyState.of(entry["state"]), entry["why"], exit_code)


def _unregistered(operable: Operable) -> TopologyEntry:
    """The entry of a topology whose home could not be used."""
    name = operable.lane.topology.name
    return entry_with(
        id=f"{name}-unregistered", name=name, state=TopologyState.STARTING, checkpoint=operable.checkpoint
    )


def _command() -> list[str]:
    """The arguments of this process, if it is the command ``sparkbolt``."""
    program = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
    ours = program.name == "sparkbolt" or (program.name == "__main__.py" and program.parent.name == "sparkbolt")
    return list(sys.argv) if ours else []


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, SparkboltError) else line_of(error)
