"""Commands: ``sparkbolt dlq`` lists and shows dead letters, and replays them into a topology.

``control.letters.stores`` has the rules of a replay. Every command reports lines that are not valid letters, and writes
no tuples to the place of the letters.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence

from sparkbolt.api.dead_letters import FILE, DeadLetter
from sparkbolt.api.story import short_values, time_text
from sparkbolt.control.letters.common import ID_CHARACTERS_SHOWN, LettersFound
from sparkbolt.control.letters.of_topology import ListedLetter
from sparkbolt.control.letters.stores import LetterLocation, LetterStore, open_store
from sparkbolt.control.letters.topic import KAFKA
from sparkbolt.errors import SparkboltError, WrongUseError
from sparkbolt.faces.cli.command_arguments import Count
from sparkbolt.faces.cli.program import EXIT_FINISHED
from sparkbolt.faces.cli.resolver import checkpoint_of, is_path
from sparkbolt.faces.cli.texts import show
from sparkbolt.spark.checkpoint_files import open_files


def _store(where: str, client_config: str | None) -> LetterStore:
    """The store of dead letters that a command names.

    Raises:
        WrongUseError: there is no such store.
    """
    is_place = where.startswith((KAFKA, FILE)) or is_path(where) or os.path.isfile(where)
    return open_store(LetterLocation(where if is_place else checkpoint_of(where), client_config), open_files)


def list_letters(
    where: str, *, client_config: str | None = None, last: Count = 20, spout: str | None = None, json: bool = False
) -> int:
    """List dead letters, the newest last.

    Args:
        where: the location of the dead letters: the checkpoint, the name or the code of the topology; file:PATH or
            PATH; or kafka:HOST:PORT/TOPIC.
        client_config: a file with properties of the Kafka client, such as SASL and TLS, one key=value per line; never
            printed.
        last: the maximum number of entries (default: 20).
        spout: only letters of this spout.
        json: print one JSON object per line.
    """
    store = _store(where, client_config)
    read = store.letters()
    replayed, discarded = store.replayed(), store.discarded()
    letters = _of(read.letters, spout)
    shown = [
        ListedLetter(**vars(one), replayed=one.id in replayed, discarded=one.id in discarded) for one in letters[-last:]
    ]
    if json:
        _warn(read)
        show(one.to_line() for one in shown)
    else:
        show([*(line for one in shown for line in _two_lines(one)), *_closing(read, letters, len(shown), replayed)])
    return EXIT_FINISHED


def _of(letters: Sequence[DeadLetter], spout: str | None) -> list[DeadLetter]:
    known = sorted({letter.component for letter in letters})
    if spout is not None and letters and spout not in known:
        raise WrongUseError(f"there is no dead letter of spout {spout!r} here; choose one of {', '.join(known)}")
    return [letter for letter in letters if spout in (None, letter.component)]


def _two_lines(letter: ListedLetter) -> list[str]:
    tries = f"{letter.attempts_in_all} attempt{'s' if letter.attempts_in_all > 1 else ''}"
    again = (", replayed" if letter.replayed else "") + (", discarded" if letter.discarded else "")
    name = letter.id[:ID_CHARACTERS_SHOWN]
    return [
        f"{time_text(letter.last.ended_ms)}  {name}  {letter.where}, {tries}{again}",
        f"    {letter.last.cause} in {letter.last.component}[{letter.last.task}]: {letter.last.reason}",
    ]


def _warn(read: LettersFound) -> None:
    if read.damage is not None:
        print(f"sparkbolt: {read.damage}", file=sys.stderr)


def _closing(read: LettersFound, letters: Sequence[DeadLetter], shown: int, replayed: set[str]) -> list[str]:
    done = sum(letter.id in replayed for letter in letters)
    lines = [f"{len(letters)} dead letter(s), {shown} shown, {done} replayed"]
    causes = Counter(letter.last.cause for letter in letters)
    if len(causes) > 1:
        lines.append("causes: " + ", ".join(f"{cause} {count}" for cause, count in causes.most_common()))
    if read.repeated:
        lines.append(f"{read.repeated} {read.what}(s) repeat the id of another letter and count once")
    return lines if read.damage is None else [*lines, read.damage]


def show_letters(where: str, ids: Sequence[str], *, client_config: str | None = None, json: bool = False) -> int:
    """Show the attempts and the record of dead letters.

    Args:
        where: the location of the dead letters: the checkpoint, the name or the code of the topology; file:PATH or
            PATH; or kafka:HOST:PORT/TOPIC.
        ids: the id of a letter, or its beginning.
        client_config: a file with properties of the Kafka client, such as SASL and TLS, one key=value per line; never
            printed.
        json: print one JSON object per line.

    Raises:
        WrongUseError: no letter's id, or several ids, begin with one of the names.
    """
    read = _store(where, client_config).letters()
    _warn(read)
    lines: list[str] = []
    for letter in _named(read.letters, ids):
        lines += [letter.to_line()] if json else [*([""] if lines else []), *_all_lines(letter)]
    show(lines)
    return EXIT_FINISHED


def _all_lines(letter: DeadLetter) -> list[str]:
    lines = [
        f"dead letter {letter.id}",
        f"  message   {letter.where}",
        f"  topology  {letter.topology}, version {letter.version}",
    ]
    for values in letter.values():
        shown = short_values(letter.fields, list(values.values()), letter.last.reason, letter.last.traceback)
        lines.append(f"  tuple     {letter.stream}: {shown}")
    if letter.raw is not None:
        value = letter.raw.value
        headers = f", headers {', '.join(name for name, _ in letter.raw.headers)}" if letter.raw.headers else ""
        lines.append(f"  raw       key {letter.raw.key!r}, value {value!r:.200}{headers}")
    lines += [f"  note      {letter.note}"] if letter.note else []
    for place, attempt in enumerate(letter.attempts):
        if place == 1 and letter.attempts_left_out:
            lines.append(f"  ... {letter.attempts_left_out} attempt(s) are left out")
        lines.append(f"  attempt {attempt.number}, root {attempt.root}: failed {time_text(attempt.ended_ms)}")
        lines.append(f"    {attempt.cause} in {attempt.component}[{attempt.task}]: {attempt.reason}")
    if letter.last.traceback:
        lines += ["", *("    " + line for line in letter.last.traceback.rstrip().split("\n"))]
    return lines


def _named(letters: Sequence[DeadLetter], names: Sequence[str]) -> list[DeadLetter]:
    found = []
    for name in names:
        matches = [letter for letter in letters if letter.id.startswith(name)]
        if len(matches) != 1:
            what = (
                f"{len(matches)} dead letters have ids that begin"
                if matches
                else "no dead letter has an id that begins"
            )
            raise WrongUseError(f"{what} with {name!r}: `sparkbolt dlq list` shows the ids")
        found += matches
    return found


class NotAllReplayedError(SparkboltError):
    """Some letters were left out, or lines could not be read; the message lists them with the reasons."""


def replay(
    where: str,
    ids: Sequence[str] = (),
    *,
    client_config: str | None = None,
    into: str | None = None,
    spout: str | None = None,
    again: bool = False,
) -> int:
    """Replay dead letters.

    Args:
        where: the location of the dead letters: the checkpoint, the name or the code of the topology; file:PATH or
            PATH; or kafka:HOST:PORT/TOPIC.
        ids: only these letters (default: all letters that were not replayed).
        client_config: a file with properties of the Kafka client, such as SASL and TLS, one key=value per line; never
            printed.
        into: the destination: FILE, to which the tuples are appended as JSON; kafka:HOST:PORT[/TOPIC] for messages of
            Kafka in a checkpoint; or another topic of the same brokers for letters in a topic.
        spout: only letters of this spout.
        again: also replay letters that were replayed before.

    Raises:
        WrongUseError: the arguments are wrong, or the letters come from several spouts.
        NotAllReplayedError: some letters were left out; or all letters were requested, and some lines are not valid
            letters. The other letters are replayed.
    """
    store = _store(where, client_config)
    read = store.letters()
    if ids:
        _warn(read)
    every = _of(read.letters, spout)
    letters = _named(every, ids) if ids else every
    before = store.replayed() | store.discarded() if not again else set()
    chosen = [letter for letter in letters if letter.id not in before]
    spouts = sorted({letter.component for letter in chosen})
    if len(spouts) > 1:
        raise WrongUseError(f"these are letters of several spouts ({', '.join(spouts)}): choose one with --spout")
    done = store.replay(chosen, into)
    skipped = len(letters) - len(chosen)
    more = f"; {skipped} were replayed or discarded before and were skipped (--again replays them)" if skipped else ""
    text = f"{len(done.ids)} letter(s) replayed, {done.tuples} tuple(s){more}"
    missed = "" if read.damage is None or ids else f"; {read.damage}"
    if done.left_out:
        told = "".join(f"\n  {sentence}" for sentence in done.left_out)
        raise NotAllReplayedError(f"{text}{missed}; {len(done.left_out)} could not be replayed:{told}")
    if missed:
        raise NotAllReplayedError(f"{text}{missed}")
    show([text])
    return EXIT_FINISHED
