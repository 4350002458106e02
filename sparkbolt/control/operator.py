"""Operator: the one interface through which the command line, REST and UI ask about topologies and change them.

A topology that runs is asked; if it does not answer within ``ANSWER_SECS``, or has ended, its registration and its
checkpoint answer. Nothing here waits for a micro-batch, and nothing raises for a topology in trouble: an unknown value
is None, empty, or a sentence in ``why``. Only the questions about state take longer, and raise.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Any, cast

from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.base.codec import MismatchError
from sparkbolt.base.exceptions import line_of
from sparkbolt.control import describe
from sparkbolt.control.client import NoAnswerError, NotAllowedError, WrongRequestError, ask
from sparkbolt.control.documents import (
    Answer,
    SeriesDocument,
    StoryDocument,
    TopologyDocument,
    TopologyEntry,
    TopologyState,
    refused,
)
from sparkbolt.control.home import Home, HomeError, UnknownTopologyError, entry_with, is_place
from sparkbolt.control.kept_state import READ_SECS, KeptState, ReadState, StateQuestions
from sparkbolt.control.letters.of_topology import ListedLetter, TopologyLetters
from sparkbolt.control.letters.seen import count_seen
from sparkbolt.control.letters.selection import LetterFilter, LetterKind
from sparkbolt.control.letters.stores import OpenFiles
from sparkbolt.control.log_reading import last_lines
from sparkbolt.control.logs import LogLine
from sparkbolt.control.metric_documents import metric_documents
from sparkbolt.control.operable import TopologyView
from sparkbolt.control.parameters import Parameter
from sparkbolt.control.past import Past
from sparkbolt.control.problems import verdict_of
from sparkbolt.control.questions import Last, Search, TimeMs, Views, question
from sparkbolt.control.stopped import StoppedTopology
from sparkbolt.control.verbs import VERBS
from sparkbolt.control.windows import Shape, micro_batches_of, series_of, slowest_of, span_of, windows_of
from sparkbolt.errors import SparkboltError, StateError, WrongUseError
from sparkbolt.observe.history import History, MicroBatchRecord

ANSWER_SECS = 1.0
CHECKPOINTS_MAX = 20
"""How many checkpoints are kept open for the next question."""
log = logging.getLogger("sparkbolt")


class Operator(Views, StateQuestions):
    """Asks topologies that are registered in one home, and checkpoints that are given by their path.

    Its methods may be called from any thread.
    """

    def __init__(
        self,
        home: str | None = None,
        *,
        open_files: OpenFiles,
        client_config: str | None = None,
        read_state: ReadState | None = None,
    ) -> None:
        """Look into ``home``: a path or URL; None: ``SPARKBOLT_HOME``, or the user's own default.

        Args:
            home: where topologies are registered.
            open_files: opens the checkpoint of a path or URL for reading; with ``write=True`` for changes.
            client_config: a file with properties of Kafka's client, for dead letters in Kafka.
            read_state: reads the state in the checkpoint of a topology that does not run; None: nobody does.
        """
        self.home = Home(home)
        self._open_files, self._client_config, self._read_state = open_files, client_config, read_state
        self._lock = threading.Lock()
        self._pasts: OrderedDict[str, Past] = OrderedDict()

    # Questions. TOPOLOGY is an id, a name (then the newest of that name, one that runs before others), or the
    # path of a checkpoint.

    @question("")
    def topologies(self, *, ended: bool = True) -> list[TopologyEntry]:
        """List the topologies.

        Those that run are first, then those that have ended, the newest first.

        Args:
            ended: include topologies that have ended.

        Raises:
            HomeError: the home cannot be read.
        """
        return [entry for entry in self.home.entries() if ended or TopologyState.of(entry["state"]).runs]

    @property
    def trouble(self) -> str | None:
        """A sentence if the home cannot be read and ``topologies`` returns older entries; otherwise None."""
        return self.home.trouble

    def find(self, topology: str) -> TopologyEntry:
        """The entry of a topology.

        Raises:
            UnknownTopologyError: none is registered under that name or id; the message names similar ones.
            AmbiguousTopologyError: two of that name run; the message names their ids.
            HomeError: the home cannot be read.
        """
        if not is_place(topology):
            return self.home.find(topology)
        place = _absolute(topology)
        with contextlib.suppress(HomeError):
            entries = self.home.entries()
            if any(topology in (entry["id"], entry["name"]) for entry in entries):
                return self.home.find(topology)
            for entry in entries:
                if entry["checkpoint"] is not None and _absolute(entry["checkpoint"]) == place:
                    return entry
        return self._entry_of_checkpoint(place)

    def _entry_of_checkpoint(self, place: str) -> TopologyEntry:
        past = self._past_at(place)
        if past is None or (past.reader() is None and past.description().name == ""):
            why = past.trouble if past is not None else "it cannot be opened"
            raise UnknownTopologyError(f"{place} is not a checkpoint or the name of a topology: {why}")
        reader = past.reader()
        name = reader.topology if reader is not None else past.description().name
        ended_ms = reader.last_ms if reader is not None else 0
        return entry_with(
            id=place,
            name=name,
            state=TopologyState.ENDED,
            why="only its checkpoint is known",
            ended_ms=ended_ms,
            beat_ms=ended_ms,
            checkpoint=place,
            directory=place,
        )

    @question("/{topology}")
    def document(self, topology: str) -> TopologyDocument:
        """Get one topology with its components, numbers, errors and events."""
        entry = self.find(topology)
        answer, why = self._asked(entry, "document", {}, "")
        if isinstance(answer, dict):
            answer.setdefault("metrics", {})  # a topology of an older version has none
            return cast(TopologyDocument, answer)
        return self._past_document(entry, why)

    def _past_document(self, entry: TopologyEntry, why: str | None) -> TopologyDocument:
        """The document of a topology that does not answer, from its checkpoint and its registration."""
        past = self._past(entry)
        now_ms = time.time_ns() // 1_000_000
        metrics = past.metrics() if past is not None else TopologyMetrics()
        description = past.description() if past is not None else None
        reader = past.reader() if past is not None else None
        runs = TopologyState.of(entry["state"]).runs
        look = TopologyView(
            state=TopologyState.of(entry["state"]),
            metrics=metrics,
            retries=max(entry["gist"]["retries"], reader.retries if reader is not None else 0),
        )
        ended_ms = entry["ended_ms"] or entry["beat_ms"] or now_ms
        components = list(description.components) if description is not None else []
        history, flows = (past.history(), past.flows()) if past is not None else (History(), {})
        trouble = [] if past is None or past.trouble is None else [f"its checkpoint cannot be read: {past.trouble}"]
        sentences = [entry["why"], why if runs else None, *trouble]
        shown: TopologyEntry = {**entry, "why": "; ".join(text for text in sentences if text) or None}
        shown["verdict"] = verdict_of(shown)
        return TopologyDocument(
            entry=shown,
            live=False,
            components=components,
            settings=dict(description.settings) if description is not None else {},
            windows=windows_of(history, metrics, flows, Shape.of(components), ended_ms),
            now=describe.now_of(look, ended_ms, slowest=slowest_of(history, ended_ms)),
            metrics=metric_documents(metrics),
            errors=past.errors() if past is not None else [],
            events=past.events() if past is not None else [],
        )

    @question("/{topology}/series")
    def series(self, topology: str, since_ms: TimeMs = None, until_ms: TimeMs = None) -> SeriesDocument:
        """Get the history of the topology's numbers.

        Args:
            topology: the topology.
            since_ms: the start of the range (default: one hour ago).
            until_ms: the end of the range (default: now).
        """
        entry = self.find(topology)
        answer, _ = self._asked(entry, "series", {"since_ms": since_ms, "until_ms": until_ms}, "")
        if isinstance(answer, dict):
            return cast(SeriesDocument, answer)
        past = self._past(entry)
        now_ms = time.time_ns() // 1_000_000
        ended_ms = entry["ended_ms"] or entry["beat_ms"] or now_ms
        span = span_of(since_ms, until_ms, ended_ms)
        if past is None:
            return series_of(History(), [], Shape.of([]), span, now_ms)
        return series_of(past.history(), past.events(), Shape.of(past.description().components), span, ended_ms)

    @question("/{topology}/micro-batches", answer=list[MicroBatchRecord])
    def micro_batches(self, topology: str, last: Last = 100) -> list[dict[str, Any]]:
        """List the newest micro-batches with the time of each phase; the newest last.

        Args:
            topology: the topology.
            last: the maximum number of micro-batches.
        """
        entry = self.find(topology)
        answer, _ = self._asked(entry, "micro_batches", {"last": last}, "")
        if isinstance(answer, list):
            return answer
        past = self._past(entry)
        return micro_batches_of(past.history(), last) if past is not None else []

    @question("/{topology}/stories", answer=list[StoryDocument])
    def stories(
        self,
        topology: str,
        state: Annotated[str, Parameter(choices=("failed", "open", "acked"))] = "failed",
        *,
        search: Search = "",
        last: Last = 100,
    ) -> list[dict[str, Any]]:
        """List trees: failed, open, or traced and acked. An exact root or SOURCE@POSITION matches in any state.

        Args:
            topology: the topology.
            state: the state of the trees.
            search: a part of a message id, a source, a root or a reason.
            last: the maximum number of trees.
        """
        past = self._past(self.find(topology))
        return past.stories(state, search.strip(), last) if past is not None else []

    @question(
        "/{topology}/stories/{root}",
        answer=StoryDocument,
        absent="there is no tree {root!r}; trees are removed once they are acked, unless they are traced",
    )
    def story(self, topology: str, root: str) -> dict[str, Any] | None:
        """Get one tree with the other attempts of its message.

        Args:
            topology: the topology.
            root: the root of the tree.
        """
        past = self._past(self.find(topology))
        return past.story(root) if past is not None else None

    @question("/{topology}/letters", answer=list[ListedLetter])
    def letters(
        self,
        topology: str,
        *,
        search: Search = "",
        last: Last = 100,
        replayed: bool = True,
        discarded: bool = True,
        cause: str | None = None,
        component: str | None = None,
        spout: str | None = None,
        kind: str | None = None,
    ) -> list[dict[str, Any]]:
        """List the dead letters; the newest last.

        Args:
            topology: the topology.
            search: a part of an id, a message, its record, a cause or a reason.
            last: the maximum number of letters.
            replayed: include letters that were replayed.
            discarded: include letters that were discarded.
            cause: only letters with this cause.
            component: only letters that this component failed.
            spout: only letters of this spout.
            kind: only letters of this kind.
        """
        past = self._past(self.find(topology))
        if past is None:
            return []
        letters = self._letters_of(past)
        chosen = LetterFilter(search.strip(), cause, component, spout, kind)
        return letters.newest(chosen, last, replayed=replayed, discarded=discarded)

    @question("/{topology}/letter-kinds", answer=list[LetterKind])
    def letter_kinds(
        self,
        topology: str,
        *,
        search: Search = "",
        cause: str | None = None,
        component: str | None = None,
        spout: str | None = None,
        waiting: bool = True,
    ) -> list[dict[str, Any]]:
        """Group the dead letters by kind: the most frequent kind first.

        Letters of one kind have the same component, cause and reason, except for the numbers and quoted values in it.

        Args:
            topology: the topology.
            search: a part of an id, a message, its record, a cause or a reason.
            cause: only letters with this cause.
            component: only letters that this component failed.
            spout: only letters of this spout.
            waiting: only letters that were neither replayed nor discarded.
        """
        past = self._past(self.find(topology))
        chosen = LetterFilter(search.strip(), cause, component, spout)
        kinds = self._letters_of(past).kinds(chosen, waiting=waiting) if past is not None else []
        return [kind.to_json() for kind in kinds]

    @question(
        "/{topology}/letters/{letter}",
        answer=ListedLetter,
        absent="there is no dead letter {letter!r}; GET .../letters lists them",
    )
    def letter(self, topology: str, letter: str) -> dict[str, Any] | None:
        """Get one dead letter.

        Args:
            topology: the topology.
            letter: the id of the letter, or its beginning.
        """
        past = self._past(self.find(topology))
        return self._letters_of(past).one(letter) if past is not None else None

    @question("/{topology}/log", answer=list[LogLine])
    def log(
        self, topology: str, *, component: str | None = None, search: Search = "", last: Last = 200
    ) -> list[dict[str, Any]]:
        """Get the newest lines of the log; the newest last.

        It reads the end of large files only. Each line has ``time_ms``, ``level``, ``component``, ``task``,
        ``micro_batch``, ``root`` and ``text``.

        Args:
            topology: the topology.
            component: return only lines of this component.
            search: return only lines that contain this text.
            last: the maximum number of lines.
        """
        entry = self.find(topology)
        if not entry["log_directory"]:
            return []
        lines = last_lines(entry["log_directory"], entry["name"], component=component, search=search, last=last)
        return [dict(line) for line in lines]

    def _kept(
        self, topology: str, name: str, arguments: dict[str, Any], as_of: int | None, act: Callable[[KeptState], Any]
    ) -> Any:
        entry = self.find(topology)
        try:
            if TopologyState.of(entry["state"]).runs and entry["control"] is not None:
                return self._answer(entry, name, arguments, "", READ_SECS)
            place = entry["checkpoint"]
            if place is None or self._read_state is None:
                raise StateError(
                    f"topology {entry['id']} has left no state: it ran without a checkpoint"
                    if place is None
                    else f"here nobody reads the state in a checkpoint: use `sparkbolt state {place}`"
                )
            return act(self._read_state(place, as_of))
        except (StateError, WrongUseError):
            raise
        except NoAnswerError as error:
            how = f"{error}{self._elsewhere(entry, entry['control'] or '')}"
            raise StateError(
                f"{how}; `sparkbolt state {entry['checkpoint'] or entry['id']}` reads its checkpoint"
            ) from error
        except (SparkboltError, OSError) as error:
            raise StateError(str(error)) from error

    # Changes. Each is written to the topology's events with ``by``.

    def change(self, topology: str, verb: str, /, *, by: str, **arguments: Any) -> Answer:
        """Perform a row of ``VERBS``.

        A topology that does not run refuses it, unless the verb is about dead letters, or ``when_stopped``.
        """
        entry, row = self.find(topology), VERBS[verb]
        try:
            given = row.read(arguments)
        except MismatchError as mismatch:
            return refused(f"{verb}: {mismatch.place or 'it'} {mismatch.text}")
        if row.of_letters:
            return self._with_letters(entry, by, lambda letters: row.act(letters, **given))
        if not TopologyState.of(entry["state"]).runs and row.when_stopped:
            return self._with_stopped(entry, lambda stopped: row.act(stopped, by, **given))
        if not TopologyState.of(entry["state"]).runs:
            how = f" ({entry['why'].splitlines()[0].rstrip(':')})" if entry["why"] else ""
            return refused(f"topology {entry['id']} does not run{how}: you cannot {verb} it")
        answer, why = self._asked(entry, verb, given, by)
        return cast(Answer, answer) if isinstance(answer, dict) else refused(why or "there is no answer")

    def _asked(self, entry: TopologyEntry, verb: str, arguments: dict[str, Any], by: str) -> tuple[Any, str | None]:
        """The answer of a topology, or None and a sentence with the reason."""
        address = entry["control"]
        if address is None:
            return None, f"topology {entry['id']} cannot be reached: it has not registered an address"
        try:
            return self._answer(entry, verb, arguments, by, ANSWER_SECS), None
        except NoAnswerError as error:
            return None, str(error) + self._elsewhere(entry, address)
        except (NotAllowedError, WrongRequestError) as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001  the file system of the home may raise anything
            return None, line_of(error)

    def _answer(self, entry: TopologyEntry, verb: str, arguments: dict[str, Any], by: str, secs: float) -> Any:
        address = entry["control"] or ""
        token = self.home.token(entry["id"]) if address.startswith("tcp:") else None
        return ask(address, verb, arguments, by=by, token=token, secs=secs)

    def live(self, topology: str, question: str, arguments: dict[str, Any]) -> Any:  # noqa: D102  see Views
        entry = self.find(topology)
        if not TopologyState.of(entry["state"]).runs or entry["control"] is None:
            raise WrongUseError(f"topology {entry['id']} does not run, or cannot be reached")
        try:
            return self._answer(entry, question, arguments, "", ANSWER_SECS)
        except (NoAnswerError, NotAllowedError, WrongRequestError) as error:
            raise WrongUseError(str(error)) from error

    @staticmethod
    def _elsewhere(entry: TopologyEntry, address: str) -> str:
        from sparkbolt.control.processes import pid_space

        if address.startswith("unix:") and entry["pid_space"] != pid_space():
            return (
                f": it runs on {entry['host']}. Run the command there, or start the topology with "
                "SPARKBOLT_CONTROL=tcp://..."
            )
        return ""

    def _with_stopped(self, entry: TopologyEntry, act: Callable[[StoppedTopology], Answer]) -> Answer:
        """Change what a topology that does not run starts with."""
        past = self._past(entry) if entry["checkpoint"] is not None else None
        if past is None:
            return refused(f"topology {entry['id']} does not run, and has no checkpoint that can be read")
        try:
            return act(StoppedTopology(self._open_files(past.directory, write=True), f"checkpoint {past.directory}"))
        except Exception as error:  # noqa: BLE001  such as a full disk: the answer reports it
            return refused(str(error) if isinstance(error, SparkboltError) else line_of(error))

    # Dead letters.

    def _with_letters(self, entry: TopologyEntry, by: str, act: Any) -> Answer:
        past = self._past(entry)
        if past is None:
            return refused(f"topology {entry['id']} has no readable checkpoint, so it has no dead letters here")
        state = TopologyState.of(entry["state"])
        letters = self._letters_of(past, when_of(state), no_return_of(entry, state))
        try:
            answer: Answer = act(letters)
        except SparkboltError as error:
            return refused(str(error))
        except Exception as error:  # noqa: BLE001  such as a full disk: the answer reports it
            return refused(line_of(error))
        if letters.given_back and state.runs:
            told, why = self._asked(entry, "take-letters", {}, by)
            if told is None:
                later = f"it takes them after the next micro-batches, or when it starts again ({why})"
                answer = {**answer, "text": f"{answer['text']}. The topology does not answer: {later}"}
        if not state.runs and not answer["refused"]:
            self._count_again(entry, past)
        if not answer["refused"]:
            self._note(entry, past, answer["text"], by)
        return answer

    def _count_again(self, entry: TopologyEntry, past: Past) -> None:
        """Register how many dead letters of a topology that has ended wait now."""
        given_up = sum(one.given_up for one in past.metrics().components.values())
        with contextlib.suppress(Exception):  # it is a number in a list
            described = past.description()
            letters = self._open_files(described.letters_directory or past.directory)
            waiting = max(0, given_up - count_seen(described.letters.values(), letters.read))
            self.home.find(entry["id"])
            self.home.write({**entry, "gist": {**entry["gist"], "given_up": waiting}})

    def _letters_of(self, past: Past, when: str = "", no_return: str | None = None) -> TopologyLetters:
        described, config = past.description(), self._client_config
        return TopologyLetters(past.directory, described, self._open_files, config, when=when, no_return=no_return)

    def _note(self, entry: TopologyEntry, past: Past, text: str, by: str) -> None:
        """Note an action on dead letters: in the topology, or in the checkpoint if it has ended or is ending."""
        if TopologyState.of(entry["state"]).runs:
            answer, _ = self._asked(entry, "note", {"kind": "letters", "text": text}, by)
            if answer is not None and not answer["refused"]:
                return
        try:
            past.add_event(self._open_files(past.directory, write=True), "letters", text, by)
        except Exception as error:  # noqa: BLE001  it is done, even if it cannot be noted
            log.warning("the event about dead letters by %s cannot be recorded: %s", by, line_of(error))

    def _past(self, entry: TopologyEntry) -> Past | None:
        """The checkpoint of a topology, also a temporary one; None if there is none, or it cannot be opened."""
        return self._past_at(entry["checkpoint"] or entry["directory"])

    def _past_at(self, checkpoint: str | None) -> Past | None:
        if checkpoint is None:
            return None
        with self._lock:
            known = self._pasts.get(checkpoint)
            if known is not None:
                self._pasts.move_to_end(checkpoint)
                return known
        try:
            past = Past(checkpoint, self._open_files(checkpoint))
        except Exception as error:  # noqa: BLE001  trouble is part of the answer
            log.debug("checkpoint %s cannot be opened: %s", checkpoint, line_of(error))
            return None
        with self._lock:
            self._pasts[checkpoint] = past
            while len(self._pasts) > CHECKPOINTS_MAX:
                self._pasts.popitem(last=False)
        return past


def when_of(state: TopologyState) -> str:
    """When a topology in this state takes the dead letters that are given back, as a sentence; empty: at once."""
    if not state.runs:
        return "The topology does not run: they go back when it starts again with this checkpoint"
    return "The topology is inactive: they go back when you activate it" if state is TopologyState.INACTIVE else ""


def no_return_of(entry: TopologyEntry, state: TopologyState) -> str | None:
    """Why no dead letter can go back into the spouts of a topology; None if letters can."""
    if state.runs or entry["checkpoint"] is not None:
        return None
    return (
        f"topology {entry['id']} has ended, and it had no checkpoint with which it could start again: name a "
        "destination, such as a file that a spout reads"
    )


def _absolute(place: str) -> str:
    return place.rstrip("/") if "://" in place else os.path.realpath(os.path.expanduser(place))
