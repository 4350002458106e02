"""Commands: ``sparkbolt dlq`` lists and shows dead letters, and replays them into a topology.

``control.letters.stores`` has the rules of a replay. Every command reports lines that are not valid letters, and writes
no tuples to the place of the letters.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from json import dumps

from sparkbolt.api.causes import Cause
from sparkbolt.api.dead_letters import FILE, DeadLetter
from sparkbolt.api.story import short_values, time_text
from sparkbolt.base.source_names import long_path, short_sources
from sparkbolt.control.letters.common import ID_CHARACTERS_SHOWN, LettersFound
from sparkbolt.control.letters.of_topology import AT_ONCE_MAX, ListedLetter
from sparkbolt.control.letters.selection import LetterFilter, LetterKind, kind_of, kinds_of, message_key
from sparkbolt.control.letters.stores import LetterLocation, LetterStore, open_store
from sparkbolt.control.letters.topic import KAFKA
from sparkbolt.driver.ledger.ledger_files import LETTERS_FOLDER
from sparkbolt.errors import SparkboltError, WrongUseError
from sparkbolt.faces.cli.command_arguments import Count
from sparkbolt.faces.cli.operate.operator_access import by, operator_of
from sparkbolt.faces.cli.program import EXIT_FINISHED
from sparkbolt.faces.cli.resolver import checkpoint_of, entry_of, letters_of
from sparkbolt.faces.cli.texts import show
from sparkbolt.spark.checkpoint_files import open_files


def _store(where: str, client_config: str | None) -> LetterStore:
    """The store of dead letters that a command names.

    Raises:
        WrongUseError: there is no such store.
    """
    place = letters_of(where)
    checkpoint = None if place == where else checkpoint_of(where)
    return open_store(LetterLocation(place, client_config, checkpoint), open_files)


def list_letters(
    where: str,
    *,
    client_config: str | None = None,
    last: Count = 20,
    spout: str | None = None,
    cause: str | None = None,
    component: str | None = None,
    search: str | None = None,
    kind: str | None = None,
    kinds: bool = False,
    json: bool = False,
) -> int:
    """List dead letters, the newest last.

    Args:
        where: the location of the dead letters: the checkpoint, the name or the code of the topology; file:PATH or
            PATH; or kafka:HOST:PORT/TOPIC.
        client_config: a file with properties of the Kafka client, such as SASL and TLS, one key=value per line; never
            printed.
        last: the maximum number of entries (default: 20).
        spout: only letters of this spout.
        cause: only letters with this cause, such as exception or timeout.
        component: only letters that this component failed.
        search: only letters that contain this text in their id, message, record, cause or reason.
        kind: only letters of this kind.
        kinds: group the letters that wait by kind: the same component, cause and reason, except for the numbers and
            quoted values in it.
        json: print one JSON object per line.
    """
    store = _store(where, client_config)
    read = store.letters()
    replayed, discarded = store.replayed(), store.discarded()
    chosen = LetterFilter(search or "", cause, component, spout, kind)
    letters = _meant(read.letters, chosen)
    if kinds:
        found = kinds_of(letter for letter in letters if letter.id not in replayed | discarded)
        _warn(read)
        show((dumps(one.to_json()) for one in found) if json else _kind_lines(found, where))
        return EXIT_FINISHED
    newest = {message_key(letter): letter.id for letter in letters}
    letters = [one for one in letters if one.id not in replayed or newest[message_key(one)] == one.id]
    shown = [
        ListedLetter(**vars(one), replayed=one.id in replayed, discarded=one.id in discarded) for one in letters[-last:]
    ]
    if json:
        _warn(read)
        show(one.to_line() for one in shown)
    else:
        names = short_sources(one.source for one in shown if one.source is not None)
        named = (replace(one, source=names.get(one.source or "")) for one in shown)
        show([*(line for one in named for line in _two_lines(one)), *_closing(read, letters, len(shown), replayed)])
    return EXIT_FINISHED


def _kind_lines(kinds: Sequence[LetterKind], where: str) -> Iterator[str]:
    for one in kinds:
        when = f"first {time_text(one.first_ms)}, last {time_text(one.last_ms)}"
        yield f"{one.kind}  {one.count:,} of {one.spout}: {one.cause} in {one.component}: {one.reason}"
        yield f"    {when}; for example {one.example[:ID_CHARACTERS_SHOWN]}: {one.example_reason}"
    total = sum(one.count for one in kinds)
    yield f"{len(kinds)} kind(s) of dead letters, {total:,} letter(s) wait"
    if kinds:
        yield f"give all of one kind back: `sparkbolt dlq replay {shlex.quote(where)} --kind {kinds[0].kind}`"


def _meant(letters: Sequence[DeadLetter], wanted: LetterFilter) -> list[DeadLetter]:
    """The letters that a filter allows.

    Raises:
        WrongUseError: no letter here has the spout, component or kind that it names, or there is no such cause.
    """
    by_option = {
        "spout": (wanted.spout, {letter.component for letter in letters}),
        "component": (wanted.component, {letter.last.component for letter in letters}),
        "cause": (wanted.cause, {*map(str, Cause), *(letter.last.cause for letter in letters)}),
    }
    for option, (named, known) in by_option.items():
        if named and letters and named not in known:
            choice = ", ".join(sorted(known))
            raise WrongUseError(f"there is no dead letter of {option} {named!r} here; choose one of {choice}")
    if wanted.kind and letters and not any(kind_of(letter).startswith(wanted.kind) for letter in letters):
        raise WrongUseError(f"there is no dead letter of kind {wanted.kind!r} here: --kinds lists the kinds")
    return [letter for letter in letters if wanted.allows(letter)]


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
        *([f"  source    {path}"] if (path := long_path(letter.source)) else []),
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
    cause: str | None = None,
    component: str | None = None,
    search: str | None = None,
    kind: str | None = None,
    again: bool = False,
) -> int:
    """Give dead letters back to the spouts that they came from, or write them to another destination.

    Without --into, the topology takes the letters at once if it runs, and otherwise when it starts again.

    Args:
        where: the location of the dead letters: the checkpoint, the name or the code of the topology; file:PATH or
            PATH; or kafka:HOST:PORT/TOPIC.
        ids: only these letters (default: all letters that were not replayed).
        client_config: a file with properties of the Kafka client, such as SASL and TLS, one key=value per line; never
            printed.
        into: another destination: FILE, to which the tuples are appended, as lines of text for a TextSpout and
            otherwise as JSON; kafka:HOST:PORT[/TOPIC] for messages of Kafka in a checkpoint; or another topic of the
            same brokers for letters in a topic (default: the spout of each letter).
        spout: only letters of this spout.
        cause: only letters with this cause, such as exception or timeout.
        component: only letters that this component failed.
        search: only letters that contain this text in their id, message, record, cause or reason.
        kind: only letters of this kind; `sparkbolt dlq list --kinds` shows the kinds.
        again: also replay letters that were replayed before.

    Raises:
        WrongUseError: the arguments are wrong, or the letters for one destination come from several spouts.
        NotAllReplayedError: some letters were left out; or all letters were requested, and some lines are not valid
            letters. The other letters are replayed.
    """
    store = _store(where, client_config)
    read = store.letters()
    if ids:
        _warn(read)
    wanted = LetterFilter(search or "", cause, component, spout, kind)
    letters = _meant(_named(read.letters, ids) if ids else read.letters, wanted)
    before = store.replayed() | store.discarded() if not again else set()
    chosen = [letter for letter in letters if letter.id not in before]
    spouts = sorted({letter.component for letter in chosen})
    if into is None and not where.startswith(KAFKA):
        return _give_back(
            where, read, chosen, len(letters) - len(chosen), is_whole=not ids, client_config=client_config
        )
    if len(spouts) > 1:
        raise WrongUseError(f"these are letters of several spouts ({', '.join(spouts)}): choose one with --spout")
    done = store.replay(chosen, into)
    more = _skipped(len(letters) - len(chosen))
    text = f"{len(done.ids)} letter(s) replayed, {done.tuples} tuple(s){more}"
    missed = "" if read.damage is None or ids else f"; {read.damage}"
    if done.left_out:
        told = "".join(f"\n  {sentence}" for sentence in done.left_out)
        raise NotAllReplayedError(f"{text}{missed}; {len(done.left_out)} could not be replayed:{told}")
    if missed:
        raise NotAllReplayedError(f"{text}{missed}")
    show([text])
    return EXIT_FINISHED


def _skipped(count: int) -> str:
    how = "were replayed or discarded before and were skipped (--again replays them)"
    return f"; {count} {how}" if count else ""


def _give_back(
    where: str,
    read: LettersFound,
    letters: Sequence[DeadLetter],
    skipped: int,
    *,
    is_whole: bool,
    client_config: str | None,
) -> int:
    """Request that topologies give letters back to their spouts."""
    operator = operator_of(None, client_config)
    texts = list[str]()
    missed = [] if read.damage is None or not is_whole else [read.damage]
    for topology in dict.fromkeys(letter.topology for letter in letters):
        ids = [letter.id for letter in letters if letter.topology == topology]
        try:
            entry = entry_of(operator, _topology_of(where, topology))
        except WrongUseError as error:
            raise WrongUseError(
                f"{error}: name the topology or its checkpoint, whose spouts get the letters back; or a "
                "destination: --into FILE, which a spout reads"
            ) from None
        for start in range(0, len(ids), AT_ONCE_MAX):
            some = ids[start : start + AT_ONCE_MAX]
            answer = operator.change(entry["id"], "replay", by=by(), ids=some, again=True)
            (missed if answer["refused"] else texts).append(answer["text"])
    texts = texts if texts or missed else ["0 letter(s) go back"]
    text = "; ".join([*texts, *missed]) + _skipped(skipped)
    if missed or any("could not be replayed" in one for one in texts):
        raise NotAllReplayedError(text)
    show([text])
    return EXIT_FINISHED


def _topology_of(where: str, name: str) -> str:
    """The topology of the letters of a place: the place if it is a checkpoint or a name, else that of the letters."""
    if where.startswith(FILE) or os.path.isfile(os.path.expanduser(where)):
        return name
    head, _, last = where.rstrip("/").rpartition("/")
    return head if last == LETTERS_FOLDER and head else where
