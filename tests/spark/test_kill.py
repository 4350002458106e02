"""Kill -9 of a driver with four topologies, at each moment of a micro-batch: what is left keeps each promise.

The program ``tests.spark.killed`` is started again and again with the same checkpoints. Each time it dies when each
topology has reached a moment of its own; the last run ends by itself. Then each test checks one promise.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparkbolt.connectors.files.dead_letter_files import LettersRead, read_letters
from sparkbolt.driver.ledger.generations import SparkLog
from sparkbolt.files.local import LocalFiles
from tests.chaos.moments import MOMENTS
from tests.patience import PATIENCE_SECS
from tests.spark import killed_checks
from tests.spark.killed_checks import Data, Remains
from tests.spark.killed_topology import KINDS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(10 * PATIENCE_SECS)]

DEATHS = {
    "tracked": [*MOMENTS, "lettered", "staged@2", "committed@2"],
    "tracked-spark": [*MOMENTS, "lettered", "anywhere", "anywhere"],
    "transactional": [
        *("aborted", "repeated", "before:table", "written:table", "written:folder", "written:iceberg@2"),
        *("staging", "staged@2", "committed"),
    ],
    "transactional-spark": [
        *("aborted@2", "repeated@2", "before:statement", "written:statement", "planned", "staged"),
        *("promoted", "compacting", "committed"),
    ],
}
"""By topology: the moments at which it dies, ``@2`` for the second time that a run comes to one."""
LINES, FEED = 80, 120
"""How many lines and transfers there are for each run; the transfers of a run are new in it."""
OUTLIVED = "staged"
"""Where ``tracked`` dies when the JVM outlives the driver."""
TRACKED = [name for name, kind in KINDS.items() if not kind.transactional]
TRANSACTIONAL = [name for name, kind in KINDS.items() if kind.transactional]


@dataclass(frozen=True)
class Chain:
    """Runs of the program that follow each other on the same checkpoints."""

    kills: int
    seed: int
    """From which the order of the deaths is drawn, and the data."""

    def deaths(self) -> list[dict[str, str]]:
        """Of each run that is killed: the moments of its topologies."""
        order = {
            name: random.Random(f"{name} {self.seed}").sample(deaths, self.kills) for name, deaths in DEATHS.items()
        }
        return [{name: order[name][place] for name in order} for place in range(self.kills)]


SHORT, LONG = Chain(kills=3, seed=2), Chain(kills=max(map(len, DEATHS.values())), seed=2)
CHAINS = pytest.mark.parametrize(
    "left",
    [
        pytest.param(SHORT, marks=pytest.mark.lesser, id="3 kills"),
        pytest.param(LONG, marks=pytest.mark.campaign, id="all kills"),
    ],
    indirect=True,
)
"""Every run of the tests looks at some deaths; the simulator looks at each of them, thousands of times."""


@dataclass
class Left:
    """What a chain has left behind."""

    chain: Chain
    directory: Path
    commands: list[str] = field(default_factory=list)
    said: dict[str, Any] = field(default_factory=dict)
    """What the last run has counted, by topology."""
    letters: dict[str, list[LettersRead]] = field(default_factory=dict)
    """By topology: the dead letters after each kill at ``lettered``."""
    starts: int = 0
    """How many runs have begun: each goes on with another number of tasks than the one before."""
    outlived: dict[str, Any] = field(default_factory=dict)
    """What was seen while a JVM outlived its driver."""

    def check(self, promise: Callable[..., None], name: str, *arguments: Any) -> None:
        """Check a promise of a topology; an error says how to have it again."""
        try:
            promise(Remains(name, self.directory, self.said[name]), *arguments)
        except AssertionError as error:
            deaths = ", ".join(death[name] for death in self.chain.deaths())
            error.add_note(f"topology {name} died at {deaths}; {self.story}")
            raise

    @property
    def story(self) -> str:
        """How to have all of it again."""
        return f"the seed is {self.chain.seed}, and the program was run as\n" + "\n".join(self.commands)

    def run(self, *topologies: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Run the program to its end, or to its kill."""
        tasks = ("--tasks", str(2 + self.starts % 3))
        command = [sys.executable, "-m", "tests.spark.killed", str(self.directory), *options, *tasks, *topologies]
        self.commands.append(" ".join(command[1:]))
        return subprocess.run(
            command,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_SECS,
            check=False,
        )

    def said_by(self, *topologies: str, killed: bool, options: tuple[str, ...] = ()) -> list[Any]:
        """The lines of JSON of a run that is killed, or ends, as it should."""
        result = self.run(*topologies, options=options)
        self.starts += 1
        lines = result.stdout.splitlines()
        as_asked = result.returncode == (-9 if killed else 0) and ("killed" in lines) == killed
        assert as_asked, f"{result.stdout[-2000:]}{result.stderr[-4000:]}\n{self.story}"
        return [json.loads(line) for line in lines if line.startswith("{")]

    def commits(self) -> dict[str, list[int]]:
        """By topology: the micro-batches that Spark has committed."""
        return {
            name: SparkLog(LocalFiles(str(self.directory / name / "checkpoint"))).numbers("commits") for name in KINDS
        }


@pytest.fixture(scope="module")
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Run a chain."""
    chain: Chain = request.param
    left = Left(chain, tmp_path_factory.mktemp("killed"))
    data = Data(left.directory, chain.seed, LINES * (chain.kills + 1))
    for deaths in chain.deaths():
        data.feed(FEED)
        outlived = chain is LONG and deaths["tracked"] == OUTLIVED
        topologies = [f"{name}={moment}" for name, moment in deaths.items()]
        said = left.said_by(*topologies, options=("--outlived",) if outlived else (), killed=True)
        for name in TRACKED:
            if deaths[name] == "lettered":
                left.letters.setdefault(name, []).append(read_letters(left.directory / name / "letters.jsonl"))
        if outlived:
            left.outlived = outlive(left, said)
    left.said = left.said_by(*KINDS, killed=False)[-1]
    return left


def outlive(left: Left, said: list[Any]) -> dict[str, Any]:
    """Start a driver while the JVM of a dead one is there, and end that JVM."""
    processes, killed = said
    holder, jvm = psutil.Process(processes["holder"]), psutil.Process(processes["jvm"])
    try:
        commits = left.commits()
        refused = left.run("tracked", options=("--refused",))
        return {
            "staged": killed["killed"]["tracked"],
            "commits": commits,
            "refused": refused,
            "lived": jvm.is_running(),
            "commits later": left.commits(),
        }
    finally:
        holder.kill()


@CHAINS
@pytest.mark.parametrize("name", KINDS)
def test_each_message_is_acked_or_given_up_after_kill_9(left: Left, name: str) -> None:
    left.check(killed_checks.check_messages, name)


@CHAINS
@pytest.mark.parametrize("name", KINDS)
def test_counts_are_exact_after_kill_9_at_each_step(left: Left, name: str) -> None:
    left.check(killed_checks.check_counts, name)


@CHAINS
@pytest.mark.parametrize("name", KINDS)
def test_rows_of_any_spout_are_delivered_once_after_kill_9_at_each_step(left: Left, name: str) -> None:
    left.check(killed_checks.check_rows, name)


@CHAINS
@pytest.mark.parametrize("name", TRACKED)
def test_looped_tuples_are_delivered_once_after_kill_9(left: Left, name: str) -> None:
    left.check(killed_checks.check_loops, name)


@CHAINS
@pytest.mark.parametrize("name", TRACKED)
def test_each_window_is_emitted_and_none_is_wrong_after_kill_9(left: Left, name: str) -> None:
    left.check(killed_checks.check_windows, name)


@CHAINS
@pytest.mark.parametrize("name", TRANSACTIONAL)
def test_transactional_topology_puts_each_number_in_one_window_and_delivers_each_window_once(
    left: Left, name: str
) -> None:
    left.check(killed_checks.check_groups, name)


@CHAINS
@pytest.mark.parametrize("name", TRANSACTIONAL)
def test_balances_are_exact_after_failures_and_kill_9(left: Left, name: str) -> None:
    left.check(killed_checks.check_balances, name)


@CHAINS
@pytest.mark.parametrize("name", TRACKED)
def test_without_transactional_failed_attempts_stay_in_the_balances(left: Left, name: str) -> None:
    left.check(killed_checks.check_balances_hold_what_failed, name)


@CHAINS
@pytest.mark.parametrize("name", TRANSACTIONAL)
def test_each_number_is_in_each_sink_once_despite_failures_and_kill_9(left: Left, name: str) -> None:
    left.check(killed_checks.check_sinks_hold_each_row_once, name)


@CHAINS
@pytest.mark.parametrize("name", TRACKED)
def test_without_transactional_each_number_is_in_each_sink_at_least_once(left: Left, name: str) -> None:
    left.check(killed_checks.check_sinks_hold_each_row, name)


@CHAINS
@pytest.mark.parametrize("name", KINDS)
def test_a_letter_that_was_written_before_kill_9_is_there_and_counts_once(left: Left, name: str) -> None:
    left.check(killed_checks.check_letters, name, left.letters.get(name, []))


@CHAINS
@pytest.mark.parametrize("name", KINDS)
def test_no_rows_wait_in_the_checkpoint_at_the_end(left: Left, name: str) -> None:
    left.check(killed_checks.check_nothing_waits, name)


@pytest.mark.campaign
@pytest.mark.parametrize("left", [LONG], indirect=True)
def test_a_jvm_that_outlives_its_driver_commits_nothing_and_accepts_no_connection(left: Left) -> None:
    seen = left.outlived
    commits = seen["commits"]["tracked"]  # those of earlier generations may be gone
    assert commits == list(range(seen["staged"]))[-len(commits) :]
    assert seen["refused"].returncode != 0
    assert "is in use by another driver" in seen["refused"].stderr
    assert seen["lived"], "it was there all the time"
    assert seen["commits later"] == seen["commits"]
