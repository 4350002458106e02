"""What the program that is killed reads, and the checks of what it has left behind: each function is one promise."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from sparkbolt.connectors.files.dead_letter_files import LettersRead, letters_of, read_letters
from tests.spark.killed_topology import FAILS_ALWAYS, GROUP, KINDS, SHAPES, STEPS_MAX, UNIT_MS
from tests.windows import books as windows
from tests.windows.books import rows_of
from tests.windows.shapes import Feed

A_FILE = 100
"""Transfers in a file that Spark reads, one of them in a micro-batch."""


class Data:
    """What the program reads; transfers come in feeds, so that each run has something to do until it is killed."""

    def __init__(self, directory: Path, seed: int, lines: int) -> None:
        self._data = directory / "data"
        for folder in ("text", "spark"):
            (self._data / folder).mkdir(parents=True)
        (self._data / "lines.txt").write_text("".join(f"{line}\n" for line in Feed(seed, UNIT_MS).lines(lines)))
        self._chance = random.Random(seed)
        self._fed = 0

    def feed(self, transfers: int) -> None:
        """Write as many transfers, numbered from 1, as new files: for our spout, and for Spark."""
        chance, first = self._chance, self._fed + 1
        self._fed += transfers
        rows = [
            f"{number} a{chance.randrange(9)} b{chance.randrange(9)} {chance.randrange(1, 99)}"
            for number in range(first, first + transfers)
        ]
        (self._data / f"text/{first:05}.txt").write_text("".join(f"{row}\n" for row in rows))
        for start in range(0, transfers, A_FILE):
            part = [{"id": f"k{row.split()[0]}", "line": row} for row in rows[start : start + A_FILE]]
            text = "".join(json.dumps(row) + "\n" for row in part)
            (self._data / f"spark/{first + start:05}.json").write_text(text)


@dataclass(frozen=True)
class Remains:
    """What one topology has read, said and left behind, once it has processed everything."""

    name: str
    directory: Path
    """Of all topologies."""
    said: Mapping[str, Any]
    """Its counts: by spout, and the open trees."""

    @property
    def kind(self) -> Any:
        return KINDS[self.name]

    @property
    def out(self) -> Path:
        return self.directory / self.name

    @property
    def lines(self) -> list[str]:
        return (self.directory / "data/lines.txt").read_text().splitlines()

    @property
    def transfers(self) -> dict[int, str]:
        files = sorted((self.directory / "data/text").iterdir())
        return {int(row.split()[0]): row for file in files for row in file.read_text().splitlines()}

    @property
    def good(self) -> list[int]:
        """The transfers that succeed."""
        return [number for number in self.transfers if number % FAILS_ALWAYS]

    @property
    def bad(self) -> list[int]:
        """Those that fail at each attempt."""
        return [number for number in self.transfers if number % FAILS_ALWAYS == 0]

    def appended(self, file: str) -> list[dict[str, Any]]:
        """The rows of a ``Statement``."""
        return [json.loads(line) for line in (self.out / file).read_text().splitlines()]

    def letters(self) -> LettersRead:
        """All dead letters."""
        if not self.kind.transactional:
            return read_letters(self.out / "letters.jsonl")
        files = sorted((self.out / "checkpoint/dead-letters").iterdir())
        return letters_of([line for file in files for line in file.read_bytes().splitlines()])


def check_messages(remains: Remains) -> None:
    """Each message is acked, or given up after its attempts; none is read twice, none is left."""
    lines, transfers = remains.said["lines"], remains.said["transfers"]
    count = len(remains.lines)
    assert (lines["emitted"], lines["acked"], lines["failed"]) == (count, count, 0)
    assert (transfers["acked"], transfers["given_up"]) == (len(remains.good), len(remains.bad))
    assert remains.said["open"] == 0


def check_counts(remains: Remains) -> None:
    """Each count of each word was written once."""
    found = Counter((row["word"], row["count"]) for row in rows_of(remains.out / "counts"))
    true = Counter(word for line in remains.lines for word in line.split())
    assert found == {(word, count): 1 for word, total in true.items() for count in range(1, total + 1)}


def check_loops(remains: Remains) -> None:
    """Each number has left the loop once, after exactly as many steps as it had to take."""
    found = sorted((row["number"], row["steps"]) for row in rows_of(remains.out / "walks"))
    assert found == [(number, number % (STEPS_MAX + 1) + 1) for number in range(len(remains.lines))]


def check_windows(remains: Remains) -> None:
    """Each window was seen, with what belongs to it."""
    found = windows.check(remains.out, SHAPES, exact=True)
    assert found.wrong == []
    assert found.lacking == []
    assert found.shown > len(remains.lines) // 7


def check_groups(remains: Remains) -> None:
    """Each transfer that succeeds is in one window, and each window left once, although some failed at first."""
    rows = remains.appended("totals.jsonl")
    numbers = [number for row in rows for number in row["numbers"]]
    assert {len(row["numbers"]) for row in rows} == {GROUP}
    assert len(numbers) == len(set(numbers))
    assert set(numbers) <= set(remains.good)
    assert len(rows) == len(remains.good) // GROUP, "the last window is not full"
    assert sorted(row["count"] for row in rows) == list(range(1, len(rows) + 1))


def check_rows(remains: Remains) -> None:
    """Each transfer that succeeds has passed once, with what was read of it."""
    rows = remains.appended("statement.jsonl")
    assert sorted(row["number"] for row in rows) == remains.good
    read = remains.transfers
    for row in rows:
        assert f"{row['number']} {row['source']} {row['target']} {row['amount']}" == read[row["number"]]
    for file in ("statement.jsonl", "totals.jsonl"):
        txids = [row["txid"] for row in remains.appended(file)]
        assert txids == sorted(txids), file


def wrong_balances(remains: Remains) -> int:
    """How many balances do not follow from the one before and the amount of exactly one transfer."""
    wrong, rows = 0, remains.appended("statement.jsonl")
    for account, balance in (("source", "paid"), ("target", "got")):
        histories = defaultdict(list)
        for row in rows:
            histories[row[account]].append((row[balance], row["amount"]))
        for history in histories.values():
            before = 0
            for after, amount in sorted(history):
                wrong += after != before + amount
                before = after
    return wrong


def check_balances(remains: Remains) -> None:
    """Of a transactional topology: what failed is in no balance."""
    assert wrong_balances(remains) == 0


def check_balances_hold_what_failed(remains: Remains) -> None:
    """Of any other: so that the check above shows something."""
    assert wrong_balances(remains) > 0


def in_json(out: Path) -> list[dict[str, Any]]:
    return rows_of(out)


def in_folder(out: Path) -> list[dict[str, Any]]:
    return ds.dataset(out, format="parquet").to_table(columns=["number", "name"]).to_pylist()


def in_delta(out: Path) -> list[dict[str, Any]]:
    return DeltaTable(out).to_pyarrow_table().to_pylist()


def in_iceberg(out: Path) -> list[dict[str, Any]]:
    with load_catalog("default", type="sql", uri=f"sqlite:///{out.parent}/catalog.db") as catalog:
        return catalog.load_table("shop.numbers").scan().to_arrow().to_pylist()


SINKS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "json": in_json,
    "parquet": in_folder,
    "folder": in_folder,
    "delta": in_delta,
    "iceberg": in_iceberg,
}


def check_sinks_hold_each_row_once(remains: Remains) -> None:
    """Of a transactional topology: what succeeds is there once, what fails is not there."""
    for sink, read in SINKS.items():
        rows = read(remains.out / sink)
        assert sorted(row["number"] for row in rows) == remains.good, sink
        assert all(row["name"] == f"name {row['number']}" for row in rows), sink


def check_sinks_hold_each_row(remains: Remains) -> None:
    """Of any topology: what succeeds is there; some is there twice, so that the check above shows something."""
    for sink, read in SINKS.items():
        numbers = [row["number"] for row in read(remains.out / sink)]
        assert set(numbers) >= set(remains.good), sink
        assert len(numbers) > len(set(numbers)), f"{sink}: nothing came twice"


def check_letters(remains: Remains, before: Sequence[LettersRead]) -> None:
    """Each transfer that was given up has one letter, also if it was written before a kill.

    Args:
        remains: of the topology.
        before: what was there after each kill at ``lettered``, when the micro-batch that wrote it had to run again.
    """
    read = remains.letters()
    assert read.damaged == []
    assert remains.said["transfers"]["dead_letters"] == len(remains.bad)
    lines = [letter.values()[0]["line"] for letter in read.letters]
    assert sorted(lines) == sorted(remains.transfers[number] for number in remains.bad)
    if remains.kind.spark:
        assert sorted(str(letter.message_id) for letter in read.letters) == sorted(f"'k{n}'" for n in remains.bad)
    ids = [letter.id for letter in read.letters]
    for earlier in before:
        assert earlier.letters, "a letter was written before the kill"
        assert ids[: len(earlier.letters)] == [letter.id for letter in earlier.letters]
        assert read.repeated > earlier.repeated, "the micro-batch ran again, and wrote its letters again"


def check_nothing_waits(remains: Remains) -> None:
    """No rows wait for their commit, and no micro-batch for its repetition."""
    assert not [file for folder in ("commits", "aborts") for file in (remains.out / "checkpoint" / folder).glob("*")]
