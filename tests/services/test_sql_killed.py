"""A topology on Spark writes to PostgreSQL while driver, worker and database are killed: each row is there once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECS, TEST_SECS
from tests.services import PostgreSQL

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.timeout(TEST_SECS)]

LINES = 12_000
BAD = 7


def start(server: PostgreSQL, directory: Path, moment: str) -> subprocess.Popen[str]:
    arguments = [server.address, str(directory / "text.txt"), str(directory), moment]
    environment = {**os.environ, "SPARKBOLT_HOME": str(directory / "home")}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.services.sql_lines", *arguments],
        cwd=Path(__file__).parents[2], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str], moment: str) -> str:
    out, errors = process.communicate(timeout=PATIENCE_SECS)
    assert ("killed" in out) == (moment != "never"), f"{moment}: {out[-2000:]}{errors[-5000:]}"
    return out


@pytest.mark.campaign
def test_each_row_is_written_once_although_driver_worker_and_database_are_killed(tmp_path: Path) -> None:
    text = [f"line {number} {'x' * (number % 50)}" for number in range(LINES)]
    text[LINES // 2] = "deadly"
    text[BAD] = "bad"
    (tmp_path / "text.txt").write_text("\n".join(text) + "\n")
    with PostgreSQL(tmp_path / "postgresql") as server:
        server.ask("CREATE TABLE lines (\"offset\" bigint NOT NULL, line text CHECK (line <> 'bad'))")
        for moment in ("staged:1", "staging:3", "committed:5"):
            ended(start(server, tmp_path, moment), moment)
        process = start(server, tmp_path, "never")
        while process.poll() is None and server.ask("SELECT count(*) FROM lines")[0][0] < LINES * 0.6:
            threading.Event().wait(0.1)
        assert process.poll() is None, "the database is killed while the topology writes"
        for _ in range(2):
            server.kill()
            threading.Event().wait(1)
            server.start()
            threading.Event().wait(1)
        assert f"acked {LINES - 1}" in ended(process, "never")
        assert (tmp_path / "died").exists()
        found = Counter(line for (line,) in server.ask("SELECT line FROM lines"))
        assert found == Counter(text) - Counter(["bad"])
        sizes = dict(server.ask("SELECT size, n FROM lengths"))
        more = {"bad": 1}  # its tree has failed and come again, and only its row is refused
        assert sizes == Counter(len(line) for line in text for _ in range(1 + more.get(line, 0)))
