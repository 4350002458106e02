"""Agreement: whether the ledger's log and Spark's files agree on the last micro-batches.

    spark/offsets/n   Spark has logged the plan of n; it is about to run, or has run
    spark/commits/n   Spark has committed n, with its state
    ledger/n.entry    the staged results of n; ledger/n.snapshot: the ledger after n
    lives             which lives have begun
    topology          the topology's shape, and which task runs where
    spark/metadata    the id of Spark's query

They agree if all of these hold:

- the ledger has every entry up to the last commit;
- the plans of its entries are the plans of the offsets;
- at most one offset follows that commit, and it holds the plan of its own micro-batch;
- the other files are there, and the last life in ``lives`` is not earlier than the last life in the ledger.

Rule 1: a repair never invents results of a micro-batch. It goes back to the last micro-batch on which both agree and
whose state exists, and moves all later files aside; the next start runs the later micro-batches again. Only the number
of a life and the id of Spark's query are created again, because nothing else refers to them.
Rule 2: no tuple is lost. The micro-batches that a repair undoes may have been promoted, and queues delete messages that
were acked. So a repair never goes back over a micro-batch that held records of a ``Spout``, nor over one whose plan is
missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparkbolt.base.file_access import Files
from sparkbolt.driver.ledger import ledger_log
from sparkbolt.driver.ledger.generations import TOPOLOGY_FILE, TOPOLOGY_MISSING, Generation, Generations, SparkLog
from sparkbolt.driver.ledger.ledger_files import last_life, lives_missing
from sparkbolt.errors import CheckpointError
from sparkbolt.wire.plan import MicroBatchPlan, Offset, plan_of

METADATA = "metadata"
_LOGS = ("offsets", "commits")
_HEAD_LINES = 2
"""An offset of Spark's begins with its version and its settings; then each source has a line, the plan the last."""
_LEDGER = re.compile(r"^(\d+)\.(entry|snapshot)$")


NO_END = "-"
"""The text that Spark logs for a source without any data so far."""


class LoggedOffset(NamedTuple):
    """An offset as Spark has logged it."""

    inlets: tuple[str, ...]
    """The ends of the sources of inlets."""
    plan: Offset

    def has_rows(self, before: LoggedOffset | None) -> bool:
        """Whether the sources of inlets had something new since the offset before; None without such an offset."""
        known = before.inlets if before is not None else (NO_END,) * len(self.inlets)
        return bool(self.inlets) and self.inlets != known


def logged_offset(data: bytes) -> LoggedOffset:
    r"""Read a file of Spark's log of offsets.

    >>> logged_offset(b'v1\n{}\n{"logOffset":1}\n{"micro_batch_id": 3}')
    LoggedOffset(inlets=('{"logOffset":1}',), plan={'micro_batch_id': 3})

    Raises:
        IndexError: there is no line.
        ValueError: the last line is not JSON.
    """
    lines = data.decode().strip().splitlines()
    return LoggedOffset(tuple(lines[_HEAD_LINES:-1]), json.loads(lines[-1]))


def with_inlets(data: bytes, ends: Sequence[str]) -> bytes:
    r"""A file of Spark's log of offsets, which has no ends of inlets, with these.

    >>> with_inlets(b'v1\n{}\n{"micro_batch_id": 3}', ['{"logOffset":1}', "-"])
    b'v1\n{}\n{"logOffset":1}\n-\n{"micro_batch_id": 3}'
    """
    lines = data.decode().strip().splitlines()
    return "\n".join([*lines[:_HEAD_LINES], *ends, *lines[_HEAD_LINES:]]).encode()


@dataclass(frozen=True)
class InletSources:
    """What Spark's log says about the sources of inlets."""

    count: int = 0
    """How many sources the inlets have; an inlet may have several."""
    keep_state: bool = False
    """Whether Spark keeps state for an inlet, such as that of ``dropDuplicates``, beside that of the bolts."""

    @classmethod
    def read(cls, files: Files, generations: Sequence[Generation]) -> InletSources:
        """Those of the last micro-batch that is committed."""
        log = SparkLog(files, generations)
        last = log.last_commit
        one = Generations(generations).of(last)
        stateful = sum(name.isdigit() for name in files.names(f"{one.folder}/state"))
        logged = log.read("offsets", last) if last >= 0 else None
        keep_state = stateful > len(one.placement.get("stateful", ()))
        return cls(len(logged_offset(logged).inlets) if logged is not None else 0, keep_state)


@dataclass(frozen=True)
class Agreement:
    """The findings, in sentences, and the steps of a repair."""

    facts: tuple[str, ...]
    mistakes: tuple[str, ...]
    """The disagreements of the files; empty: a start can continue."""
    put_aside: tuple[str, ...] = ()
    """The files that a repair moves aside, newest first, so that an interrupted repair creates no new disagreement."""
    last: int = -1
    """The micro-batch after which a start continues once the repair is done."""
    why_not: str | None = None
    """Why a repair cannot help."""
    made: tuple[str, ...] = ()
    """The files that a repair creates again."""
    life: int = -1
    """The last life that any file of the checkpoint mentions; the next life must be later."""


class _Steps:
    """The micro-batches in a checkpoint: their offsets, commits, entries and snapshots."""

    def __init__(self, files: Files, where: str) -> None:
        self.files, self.where = files, where
        self.log = log = SparkLog(files)
        self.offsets = log.numbers("offsets")
        commits = log.numbers("commits")
        self.broken = [n for n in commits if not is_whole("commits", log.read("commits", n))]
        self.commits = [number for number in commits if number not in self.broken]
        ledger = [(int(match[1]), match[2]) for name in files.names("ledger") if (match := _LEDGER.match(name))]
        self.entries = sorted(number for number, kind in ledger if kind == "entry")
        self.snapshots = sorted(number for number, kind in ledger if kind == "snapshot")
        self.last_commit = max(self.commits, default=-1)
        self.last_offset = max(self.offsets, default=-1)
        self.mistakes = [f"{log.name('commits', number)} is not whole, so it does not count" for number in self.broken]
        self.damaged: list[str] = []
        """Snapshots that cannot be read, up to the newest one that can."""

    def planned(self, number: int) -> MicroBatchPlan | str:
        """The plan of an offset, or a description of its damage."""
        data = self.log.read("offsets", number)
        try:
            logged = logged_offset(data or b"")
            plan = plan_of(logged.plan, self.files, self.where)
        except CheckpointError as error:
            return f"its offset holds no plan ({error})"
        except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
            return f"its offset is missing or damaged ({type(error).__name__}: {error})"
        if plan.micro_batch_id < number and logged.inlets:
            return self._without_plan(number, plan)
        if plan.micro_batch_id != number:
            return f"its offset holds the plan of micro-batch {plan.micro_batch_id}: two drivers have written here"
        return plan

    def _without_plan(self, number: int, before: MicroBatchPlan) -> MicroBatchPlan:
        """The plan of a micro-batch that Spark ran for the sources of inlets alone: it reads nothing.

        Args:
            number: the micro-batch.
            before: the last plan before it, which its offset repeats.
        """
        staged = self.staged(number) if f"{number}.entry" in self.files.names("ledger") else None
        if isinstance(staged, MicroBatchPlan) and not staged.reserving:
            return staged
        return MicroBatchPlan(number, life=before.life, now_ms=before.now_ms)

    def staged(self, number: int) -> MicroBatchPlan | str:
        """The plan of a ledger entry, or a description of its damage."""
        data = self.files.read(f"ledger/{number}.entry")
        if data is None:
            return f"ledger/{number}.entry is missing"
        try:
            plan = ledger_log.load_entry(data, f"ledger/{number}.entry")[1]
        except CheckpointError as error:
            return str(error)
        if plan.micro_batch_id != number:
            return f"ledger/{number}.entry is of micro-batch {plan.micro_batch_id}"
        return plan

    def known_life(self) -> int:
        """The last life that the ledger or a plan mentions; -1 if there is none."""
        lives = [-1]
        for name in [*(f"{number}.entry" for number in self.entries), *(f"{n}.snapshot" for n in self.snapshots)]:
            data = self.files.read(f"ledger/{name}") or b""
            try:
                is_entry = name.endswith(".entry")
                life = ledger_log.load_entry(data, name)[0] if is_entry else ledger_log.load_snapshot(data, name).life
                lives.append(life)
            except CheckpointError:  # if this file counts, another check reports it
                continue
        plans = [self.planned(number) for number in self.offsets]
        return max([*lives, *(plan.life for plan in plans if not isinstance(plan, str))])

    def _base(self) -> int:
        """The newest snapshot that can be read; -1 if there is none."""
        for number in reversed(self.snapshots):
            name = f"ledger/{number}.snapshot"
            try:
                if number <= self.last_commit:
                    ledger_log.load_snapshot(self.files.read(name) or b"", name)
                    return number
            except CheckpointError as error:
                self.mistakes.append(str(error))
                self.damaged.append(name)
        return -1

    def whole_up_to(self) -> int:
        """The last committed micro-batch up to which the ledger is complete and has the plans that Spark has run."""
        for number in range(self._base() + 1, self.last_commit + 1):
            staged = self.staged(number)
            if isinstance(staged, str):
                self.mistakes.append(f"micro-batch {number} is committed, but {staged}")
                return number - 1
            planned = self.planned(number) if number in self.offsets else staged
            if isinstance(planned, str):
                self.mistakes.append(f"micro-batch {number} is committed, but {planned}")
                return number - 1
            if not _same(planned, staged):
                self.mistakes.append(
                    f"micro-batch {number} is committed, but the ledger's entry was staged with another plan than "
                    "the one that Spark has run: two drivers have written here"
                )
                return number - 1
        return self.last_commit

    def lost_by_going_back(self, last: int) -> str | None:
        """Why a repair must not go back to the micro-batch ``last``; None if nothing would be lost."""
        counted = max([self.last_commit, self.last_offset - 1, *self.snapshots])
        for number in range(last + 1, counted + 1):
            plan = self.planned(number) if number in self.offsets else self.staged(number)
            if isinstance(plan, str):
                return f"micro-batch {number} may have been counted, and nobody knows what it has read: {plan}"
            if any(entry.source is None for entry in plan.entries):
                return (
                    f"micro-batch {number} may have been counted, and held records of a Spout, whose queue then has "
                    "forgotten them: to run it again would lose them"
                )
        if last >= 0 and last not in self.offsets:
            return f"{self.log.name('offsets', last)} is missing, behind which Spark would go on"
        return self.state_missing(last) if last >= 0 else None

    def state_missing(self, number: int) -> str | None:
        """The first missing file of a committed micro-batch's state, in a sentence; None if all exist."""
        name = self.log.name("commits", number)
        if self.files.read(name) is None:
            return f"{name} is missing"
        try:
            stores = self.log.stores(number)
        except ValueError as error:
            return f"{name} is damaged ({error})"
        for folder, version in stores:
            if not {f"{version}.zip", f"{version}.changelog"}.intersection(self.files.names(folder)):
                return f"{folder} has no state of micro-batch {number} any more (version {version})"
        return None

    def behind(self, last: int) -> list[str]:
        """The files of later micro-batches that must go, so that Spark and the ledger can continue after ``last``."""
        kept = {last + 1} if last + 1 in self.offsets and not isinstance(self.planned(last + 1), str) else set()
        commits = [*self.commits, *self.broken]
        found = [(number, 0, self.log.name("commits", number)) for number in commits if number > last]
        found += [(n, 1, self.log.name("offsets", n)) for n in self.offsets if n > last and n not in kept]
        found += [
            (n, 2, f"ledger/{n}.snapshot")
            for n in self.snapshots
            if n > last and f"ledger/{n}.snapshot" not in self.damaged
        ]
        if found or self.damaged:
            found += [(n, 3, f"ledger/{n}.entry") for n in self.entries if n > last]
        return [*self.damaged, *(name for _, _, name in sorted(found, key=lambda item: (-item[0], item[1])))]


def is_whole(log: str, data: bytes | None) -> bool:
    r"""Whether a file of one of Spark's logs was written to its end: a line with a version, then JSON in lines.

    A commit has one such line; an offset has two, the settings of the query and the plan.

    >>> is_whole("commits", b"v1\n{}"), is_whole("offsets", b"v1\n{}"), is_whole("commits", b"")
    (True, False, False)
    """
    head, *lines = (data or b"").rstrip().split(b"\n")
    return head[:1] == b"v" and len(lines) >= (2 if log == "offsets" else 1) and lines[-1][-1:] == b"}"


def examine(files: Files, where: str = "the checkpoint") -> Agreement:
    """Compare the ledger's log with Spark's offsets, commits and state."""
    steps = _Steps(files, where)
    facts = _facts(steps)
    mistakes = steps.mistakes
    last = steps.whole_up_to()
    if steps.last_offset < steps.last_commit:
        mistakes.append(
            f"Spark has committed micro-batch {steps.last_commit}, but its offsets end with {steps.last_offset}"
        )
    elif steps.last_offset > steps.last_commit + 1:
        mistakes.append(
            f"Spark has logged micro-batch {steps.last_offset}, but its commits end with {steps.last_commit}: commits "
            "of what lies between were lost"
        )
    elif steps.last_offset == steps.last_commit + 1 and last == steps.last_commit:
        planned = steps.planned(steps.last_offset)
        if isinstance(planned, str):
            mistakes.append(f"micro-batch {steps.last_offset} is logged and not committed, but {planned}")
    ahead = max(steps.snapshots, default=-1)
    if ahead > steps.last_commit:
        mistakes.append(f"the ledger has counted micro-batch {ahead}, but Spark's commits end with {steps.last_commit}")
    aside, made, why_not = _besides(steps, known := steps.known_life())
    if why_not is not None:
        return Agreement(facts, tuple(mistakes), why_not=why_not)
    missing = steps.state_missing(last) if last >= 0 and last == steps.last_commit else None
    if missing is not None:
        mistakes.append(missing)
        return Agreement(facts, tuple(mistakes), why_not="the state of the last commit cannot be had back")
    if not mistakes:
        return Agreement(facts, (), last=last)
    lost = steps.lost_by_going_back(last)
    if lost is not None:
        return Agreement(facts, tuple(mistakes), why_not=lost)
    return Agreement(facts, tuple(mistakes), (*aside, *steps.behind(last)), last, made=made, life=known)


def _besides(steps: _Steps, known: int) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """Add the mistakes in the other files; (files to move aside, files to create again, why a repair cannot help)."""
    files, aside, made = steps.files, [], []
    if (last := last_life(files)) < known:
        steps.mistakes.append(lives_missing(known, last))
        made.append(f"lives/{known + 1}")
    folder = steps.log.folder
    wrong = metadata_mistake(files, folder, is_logged=any(files.names(f"{folder}/{log}") for log in _LOGS))
    if wrong is not None:
        steps.mistakes.append(wrong)
        name = f"{folder}/{METADATA}"
        aside += [name] * (files.read(name) is not None)
        made.append(name)
    topology, damage = files.read(TOPOLOGY_FILE), Generations.damage(files)
    if damage is not None:
        steps.mistakes.append(f"the file 'topology' is {damage}")
        aside.append(TOPOLOGY_FILE)  # the next start creates it again
    elif steps.commits and topology is None:
        steps.mistakes.append(f"there are {TOPOLOGY_MISSING}")
    if steps.commits and (topology is None or damage is not None):
        return (), (), "nobody knows any more which task runs where"
    return tuple(aside), tuple(made), None


def metadata_mistake(files: Files, folder: str, *, is_logged: bool) -> str | None:
    """The mistake in the id of Spark's query, in a sentence; None if it is correct.

    Args:
        files: the checkpoint's.
        folder: the folder of Spark's checkpoint.
        is_logged: whether Spark has logged anything, so that the id must be there.
    """
    name = f"{folder}/{METADATA}"
    data = files.read(name)
    damage = ("missing" if is_logged else None) if data is None else damage_of(data, {"id": str})
    return damage and f"{name} is {damage}, without which Spark does not go on from what it has logged"


def damage_of(data: bytes, wanted: Mapping[str, type]) -> str | None:
    """The mistake in a file that must hold a JSON object with these parts; None if it is correct."""
    if not data.strip(b"\0 \r\n\t"):
        return "damaged (there is nothing in it)"
    try:
        body = json.loads(data)
    except ValueError as error:
        return f"damaged ({error})"
    parts = body if isinstance(body, dict) else {}
    missing = next((name for name, kind in wanted.items() if not isinstance(parts.get(name), kind)), None)
    return None if missing is None else f"damaged (it has no {missing!r})"


def repair(files: Files, verdict: Agreement, folder: str, query_id: str) -> list[str]:
    """Move files aside as a verdict requires; returns the names of the copies in ``folder`` of the checkpoint.

    Args:
        files: the checkpoint's.
        verdict: of ``examine``.
        folder: the folder for the copies.
        query_id: a new id for Spark's query, used if its own id is missing.
    """
    copies = []
    for name in verdict.put_aside:
        data = files.read(name)
        if data is not None:
            files.write(f"{folder}/{name}", data)
            copies.append(f"{folder}/{name}")
            files.remove(name)
    for name in verdict.made:
        if not name.endswith(f"/{METADATA}"):
            continue
        files.remove(name)  # also removes its checksum file, if it is still there
        files.write(name, json.dumps({"id": query_id}).encode())
    return copies


def _facts(steps: _Steps) -> tuple[str, ...]:
    if steps.last_offset < 0 and steps.last_commit < 0:
        return ("Spark has logged no micro-batch yet",)
    ledger = [f"snapshots of {_list(steps.snapshots)}"] if steps.snapshots else []
    ledger += [f"entries of {_list(steps.entries)}"] if steps.entries else []
    return (
        f"Spark has logged the plans of micro-batches up to {steps.last_offset} and committed them up to "
        f"{steps.last_commit}",
        f"the ledger has {' and '.join(ledger) or 'nothing'}",
    )


def _same(one: MicroBatchPlan, other: MicroBatchPlan) -> bool:
    return one.dumps() == other.dumps()


def _list(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
