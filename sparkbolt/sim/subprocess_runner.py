"""Subprocess runner: simulates in other processes: one with another hash seed, or several that share the work.

``python -m sparkbolt.sim.subprocess_runner`` runs the other process; only this module starts it.
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Any

import cloudpickle

from sparkbolt.api.topology import Topology
from sparkbolt.sim.rehearsal import Rehearsal
from sparkbolt.sim.report import SimulationReport, report_of, trail_of
from sparkbolt.sim.simulate import run_seed
from sparkbolt.sim.subject import Feed, Subject, subject_of
from sparkbolt.worker.environment import become_main, main_definitions, pickled_definitions

COLLECT_EVERY = 50
PLAIN_COMMAND = "simulate(topology, seed={seed}, history={history!r})"


class SimulatingProcess:
    """Another Python process that simulates the same topology."""

    def __init__(
        self,
        topology: Topology,
        feed: Feed | None,
        messages_max: int,
        later: Sequence[Topology] = (),
        *,
        hash_seed: int,
        command: str = PLAIN_COMMAND,
    ) -> None:
        """Start the process; it loads the topology in the background.

        Args:
            topology: The topology to simulate.
            feed: As in ``simulate``.
            messages_max: As in ``simulate``.
            later: As in ``simulate``.
            hash_seed: The value of its ``PYTHONHASHSEED``.
            command: The command that reproduces a failure, as in ``report_of``.
        """
        self._rehearsal = Rehearsal()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sparkbolt.sim.subprocess_runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.failure: str | None = None
        """Why it cannot answer; None if it can."""
        self._send((sys.path, os.getcwd(), self._rehearsal.directory))
        self._send(pickled_definitions(main_definitions()))
        self._send(cloudpickle.dumps((topology, feed, messages_max, later, command)))

    @property
    def answers(self) -> IO[bytes]:
        """The pipe of its answers."""
        assert self._process.stdout is not None
        return self._process.stdout

    def _send(self, value: Any) -> None:
        assert self._process.stdin is not None
        try:
            _write(self._process.stdin, value)
        except (BrokenPipeError, ValueError):
            self.failure = self.failure or "the process has ended"

    def ask(self, verb: str, *arguments: Any) -> None:
        """Send a request; read its answer before the next request."""
        self._send((verb, *arguments))

    def answer(self) -> Any:
        """Return the answer; None if there is none, and then ``failure`` has the reason."""
        if self.failure is not None:
            return None
        try:
            word, value = _read(self.answers)
        except (EOFError, OSError, pickle.UnpicklingError):
            word, value = "error", "the process has ended"
        if word == "error":
            self.failure = str(value)
            return None
        return value

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
        self._rehearsal.close()


_processes: dict[bytes, SimulatingProcess] = {}


def process_like(
    topology: Topology, feed: Feed | None, messages_max: int, later: Sequence[Topology]
) -> SimulatingProcess | None:
    """Return a process with another hash seed for this topology, kept for the next call; None if it is impossible."""
    try:
        key = cloudpickle.dumps((topology, feed, messages_max, later))
    except Exception:  # noqa: BLE001  pickling calls user code; the second run is then made in this process
        return None
    if key not in _processes:
        close_processes()
        other = 2 if os.environ.get("PYTHONHASHSEED") == "1" else 1
        _processes[key] = SimulatingProcess(topology, feed, messages_max, later, hash_seed=other)
    return _processes[key] if _processes[key].failure is None else None


@atexit.register
def close_processes() -> None:
    """End the processes that were kept."""
    while _processes:
        _processes.popitem()[1].close()


def _write(pipe: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value, 5)
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Any:
    head = pipe.read(8)
    if len(head) < 8:
        raise EOFError
    return pickle.loads(pipe.read(int.from_bytes(head, "little")))


# The other process.


def run_seeds(subject: Subject, seeds: Sequence[int], command: str) -> tuple[int, int, SimulationReport | None]:
    """Run seeds one after the other, up to the first that fails; return (seeds, micro-batches, its report)."""
    micro_batches = 0
    for place, seed in enumerate(seeds):
        run = run_seed(subject, seed)
        micro_batches += run.micro_batches
        if run.violations:
            return place + 1, micro_batches, report_of(subject, run, command=command)
        if place % COLLECT_EVERY == COLLECT_EVERY - 1:
            gc.collect()
    gc.collect()
    return len(seeds), micro_batches, None


def serve() -> None:
    """Load a topology and answer requests until the input ends."""
    questions = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    path, directory, rehearsal_directory = _read(questions)
    sys.path[:] = path
    os.chdir(directory)
    try:
        become_main(cloudpickle.loads(_read(questions)))
        topology, feed, messages_max, later, command = cloudpickle.loads(_read(questions))
        subject = subject_of(topology, feed, messages_max, rehearsal_directory, later)
    except Exception as error:  # noqa: BLE001  whatever a user's module raises is reported
        _write(answers, ("error", f"{type(error).__name__}: {error}"))
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        try:
            verb, *arguments = _read(questions)
        except EOFError:
            return
        try:
            _write(answers, ("ok", _answer(subject, command, verb, *arguments)))
        except Exception as error:  # noqa: BLE001  it is reported to the other process
            _write(answers, ("error", f"{type(error).__name__}: {error}"))


def _answer(subject: Subject, command: str, verb: str, *arguments: Any) -> Any:
    if verb == "trail":
        seed, faults, told = arguments
        return trail_of(subject, seed, faults, told=told)
    if verb == "seeds":
        return run_seeds(subject, range(*arguments), command)
    raise ValueError(f"unknown verb {verb!r}")


if __name__ == "__main__":
    serve()
