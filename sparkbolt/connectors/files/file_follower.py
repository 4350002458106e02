"""Follower: follows files as ``tail -F`` does, each to its end, even after a rename.

========= ============================================ =============================================================
a file    condition                                    what happens next
========= ============================================ =============================================================
new       its inode and creation time are unknown      it is read from its start, once it has a whole line; until
                                                       then its mark is live, so that later drivers find it too
live      it is at the path where it was seen last     added bytes are planned, up to the last newline
moved     another file, or none, is at its path        it is looked for by inode, beside its old name and among the
                                                       patterns; if it is found, it is live again; else it is gone
gone      no file with its identity exists             a warning reports how much was not read; reading continues
                                                       if the file returns
emptied   it is shorter than the part that was read,   a warning reports how much was not read; its present content
          or that part has changed                     counts as a new file
continued it is emptied and a copy lies beside it, or  the copy is read from the position that was reached: nothing
          it is gone and a compressed copy exists      is read twice, and the rest is read too
========= ============================================ =============================================================

A source is a file, not a path (``file_identity``). In doubt a file counts as new: lines may be read twice, but none is
lost. A file counts as a copy only if it has the name of a copy, holds the content that was read, and exists when the
driver notices the change.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain

from sparkbolt.connectors.files.file_identity import FileId
from sparkbolt.connectors.files.file_search import Inode, adds_to, files_beside, inode_of
from sparkbolt.connectors.files.followed_file import (
    SEARCHES_MAX,
    FileChange,
    FileLag,
    FileSnapshot,
    FinishedPart,
    FollowedFile,
    Progress,
)
from sparkbolt.connectors.files.plain_file import escape, find_files, tell_passed_over
from sparkbolt.connectors.files.unpacked_file import DAMAGE_SECS, is_compressed, open_content, tell_if_no_text

log = logging.getLogger(__name__)

LOOK_SECS = 1.0
"""How often new files are looked for, in seconds."""
COPY_LOOKS = 3
"""A new file that may be a copy in progress is read after this many looks without a change."""
PACKED_LOOKS = 60
"""The same for a compressed copy, which may grow in jumps."""


class Follower:
    """All files of some patterns that are or were followed."""

    def __init__(self, patterns: Sequence[str], clock: Callable[[], float]) -> None:
        """Store the arguments; nothing is looked up yet; ``clock`` returns seconds and never goes back."""
        self._patterns = list(patterns)
        self._clock = clock
        self._next_look: float | None = None
        self.live: dict[str, FollowedFile] = {}
        """Files that are there, by source."""
        self._there: dict[str, FollowedFile] = {}
        """The live files by their paths and link targets, while new files are met."""
        self._marks: dict[Inode, FollowedFile] = {}
        """The live files without a whole line, while new files are met."""
        self._gone: dict[str, FollowedFile] = {}
        self._changed: list[FollowedFile] = []
        """Files that are gone or emptied at this look; a copy may continue them."""
        self._generations: dict[tuple[int, int], int] = {}
        """The last generation of each file, by inode and time of creation."""
        self._known: set[str] = set()
        """The sources of the checkpoint."""
        self._copies: dict[str, tuple[int, int]] = {}
        """New files that may be copies in progress: their size, and for how many looks it has not changed."""
        self._told: set[str] = set()
        self._passed_over: set[str] = set()
        """Paths that were skipped at the last look, and reported."""
        self._progress: Progress = {}
        self._updated_at: float | None = None
        """When ``update`` ran last; it was called with ``_progress`` then."""

    def all(self) -> Iterator[FollowedFile]:
        """Return every file, whether it exists or not."""
        return chain(self.live.values(), self._gone.values())

    def update(self, progress: Progress) -> None:
        """Look at all files; ``progress`` gives how far each source is planned."""
        first = self._next_look is None
        self._progress, self._updated_at = dict(progress), self._clock()
        self._learn(progress)
        looked = set(self.live)
        touched = []
        for source, one in list(self.live.items()):
            change = self._look_at(one, progress)
            if change is FileChange.TOUCHED:
                touched.append(one.path)
            if change in (FileChange.NONE, FileChange.TOUCHED):
                continue
            looked.discard(source)
            del self.live[source]
            if change is FileChange.COMPLETED:
                self._complete(one)
                continue
            self._changed.append(one)
            one.searches = SEARCHES_MAX
            if change is FileChange.MOVED:
                self._gone[source] = one
            else:
                one.emptied = True
                one.close()
        if self._changed or self._next_look is None or self._clock() >= self._next_look:
            self._look(progress, first=first)
        else:
            self._meet_all(touched, progress, first=False)
        for one in self._changed:
            self._tell_change(one, progress)
        self._changed.clear()
        if first:
            self._tell_missing()
        for source in self.live.keys() - looked:
            self._look_at(self.live[source], progress)

    def _look_at(self, one: FollowedFile, progress: Progress) -> FileChange:
        try:
            return one.look(one.position(progress), self._clock())
        except OSError as error:
            self._tell_once(one.path, "%s cannot be read (%s): it is tried again until it can be", error)
            return FileChange.NONE

    def _learn(self, progress: Progress) -> None:
        """Take over from a checkpoint the files that were read before."""
        if len(progress) == len(self._known):
            return
        found: dict[FileId, int] = {}
        for source in progress.keys() - self._known:
            id_ = FileId.parse(source)
            if id_ is not None and id_.source not in self.live and id_.source not in self._gone:
                found[id_] = progress[source]
        self._known.update(progress)
        for id_ in found:
            if not id_.is_mark:
                self._generations[id_.inode, id_.birth] = max(id_.generation, self._generation(id_))
        # Only the last generation of each file. Longer beginnings first, since they identify a file better.
        last: dict[tuple[object, ...], FileId] = {}
        for id_ in sorted(found, key=lambda id_: id_.generation):
            if not id_.is_mark or id_.generation > self._generation(id_):
                last[(id_.inode, id_.birth) if id_.birth else (id_.path, id_.inode, id_.digest)] = id_
        for id_ in sorted(last.values(), key=lambda id_: (not id_.birth, -id_.length)):
            self._gone[id_.source] = one = FollowedFile(id_, id_.path, None, found[id_])
            one.searches = 1

    def lags(self, finished: Mapping[str, FinishedPart], now_s: float) -> dict[str, FileLag]:
        """Return the lag of each live file for which it is known; empty before the first ``update``.

        The files are looked at again if that was longer ago than ``LOOK_SECS``, as it is while nothing is planned.

        Args:
            finished: by source, its finished part.
            now_s: the wall clock.
        """
        if self._updated_at is None:
            return {}
        if self._clock() - self._updated_at >= LOOK_SECS:
            self.update(self._progress)
        lags = {source: one.lag(finished.get(source), now_s) for source, one in self.live.items()}
        return {source: lag for source, lag in lags.items() if lag is not None}

    # Looking for files.

    def _look(self, progress: Progress, *, first: bool) -> None:
        self._next_look = self._clock() + LOOK_SECS
        there = find_files(self._patterns)
        found = there.files
        self._passed_over = tell_passed_over(there, self._passed_over)
        self._find_again(found, progress)
        self._changed = [one for one in self._changed if one.id.source not in self.live]
        marked = [one.path for one in self.live.values() if one.id.is_mark]
        self._meet_all(dict.fromkeys([*found, *marked]), progress, first=first)
        for one in self._changed:
            self._seek_copy(one, progress)
        for one in self._gone.values():
            one.searches -= 1

    def _taken(self) -> set[Inode]:
        return {one.place for one in self.live.values()}

    def _find_again(self, found: Sequence[str], progress: Progress) -> None:
        """Find files that have moved, by inode, among the patterns and beside their old names."""
        if not self._gone:
            return
        names = [name for one in self._gone.values() if one.searches > 0 for name in (one.path, one.id.path)]
        places: dict[int, list[str]] = {}
        for path in dict.fromkeys([*found, *files_beside(names)]):
            inode = inode_of(path)
            if inode is not None:
                places.setdefault(inode[1], []).append(path)
        taken = self._taken()
        for source, one in list(self._gone.items()):
            for path in places.get(one.id.inode, ()) if not one.continued else ():
                if inode_of(path) in taken or not one.comes_back_as(path, one.position(progress)):
                    continue
                if source in self._told:
                    self._told.discard(source)
                    log.info("%s is there again, as %s: it is read on", escape(one.id.path), escape(path))
                self.live[source] = self._gone.pop(source)
                taken.add(one.place)
                break

    def _meet_all(self, paths: Collection[str], progress: Progress, *, first: bool) -> None:
        """Start to follow unknown files; those without a whole line by a mark."""
        if not paths:
            return
        known = [one for one in self.live.values() if not one.id.is_mark]
        taken = {one.place for one in known}
        self._there = {path: one for one in known for path in (one.path, one.target)}
        self._marks = {one.place: one for one in self.live.values() if one.id.is_mark}
        for path in paths:
            inode = inode_of(path)
            if inode is not None and inode not in taken:
                try:
                    if self._meet(path, progress, first=first):
                        taken.add(inode)
                except FileNotFoundError:  # it has just been moved; the next look finds it under its new name
                    continue
                except OSError as error:
                    self._tell_once(path, "%s cannot be read (%s): it is tried again until it can be", error)

    def _meet(self, path: str, progress: Progress, *, first: bool) -> bool:
        met = FileSnapshot.of(path)
        mark = self._marks.get((met.device, met.inode))
        since = mark.changed_at if mark is not None else None
        is_idle = since is not None and self._clock() - since >= DAMAGE_SECS
        is_damaged = is_compressed(path) and met.size > 0 and is_idle
        if not met.head and not is_damaged:
            if mark is None:
                self._mark(met)
            return False
        if not first and self._is_in_the_making(met):
            return False
        if any(self._continues(one, met, progress) for one in self._changed):
            return True
        before = max((one.position(progress) for one in self._gone.values() if _lay_there(one, met)), default=0)
        if before:
            log.warning(
                "%s was emptied or written anew since it was read up to byte %d: what it holds now is read from its "
                "start; lines that it gained behind that byte and then lost are not read: look for them in a copy "
                "beside it, such as %s",
                escape(path),
                before,
                escape(f"{os.path.realpath(path)}.1"),
            )
        tell_if_no_text(path, met.head)
        self._begin_with(met, 0, since)
        return True

    def _seek_copy(self, one: FollowedFile, progress: Progress) -> None:
        """Look beside a file that has changed for a copy that continues it and that no pattern names."""
        taken = self._taken()
        for path in files_beside([one.path]):
            if not one.may_be_continued_by(path) or inode_of(path) in taken:
                continue
            try:
                if self._continues(one, FileSnapshot.of(path), progress):
                    return
            except OSError:
                continue

    def _continues(self, one: FollowedFile, met: FileSnapshot, progress: Progress) -> bool:
        """Whether a new file continues one that has changed; if so, it is read from where reading of that one ended."""
        if met.inode == one.id.inode or not one.may_be_continued_by(met.path) or not one.is_continued_by(met.path):
            return False
        position = one.position(progress)
        self._begin_with(met, _before_end(met.path, position))
        one.continued = True
        path, was = escape(met.path), escape(one.id.path)
        log.info("%s holds what was read of %s up to byte %d: it is read from there", path, was, position)
        return True

    def _complete(self, one: FollowedFile) -> None:
        """Read a compressed file on that counted as cut and has grown, from the line that was cut."""
        assert one.unpacked is not None
        log.info(
            "%s has grown since it counted as damaged: it is read on from byte %d", escape(one.path), one.unpacked.whole
        )
        try:
            self._begin_with(FileSnapshot.of(one.path), one.unpacked.whole)
        except OSError:  # the next look finds it
            self._gone[one.id.source] = one

    def _generation(self, one: FileId | FileSnapshot) -> int:
        return self._generations.get((one.inode, one.birth), 0)

    def _mark(self, met: FileSnapshot) -> None:
        id_ = FileId.mark(met.path, met.inode, met.birth, self._generation(met) + 1)
        self.live[id_.source] = one = FollowedFile(id_, met.path, met.device)
        self._marks[one.place] = one

    def _begin_with(self, met: FileSnapshot, begin: int, changed_at: float | None = None) -> None:
        generation = self._generation(met) + 1
        self._generations[met.inode, met.birth] = generation
        mark = self._marks.pop((met.device, met.inode), None)
        if mark is not None:
            self.live.pop(mark.id.source, None)
        path = mark.id.path if mark is not None else met.path
        id_ = FileId.of_head(path, met.inode, met.birth, met.head, generation)
        self.live[id_.source] = self._there[met.path] = FollowedFile(id_, met.path, met.device, begin, changed_at)

    def _is_in_the_making(self, met: FileSnapshot) -> bool:
        """Whether a new file seems to be an unfinished copy, compressed or not, of a live file."""
        path = met.path
        shorter = (self._there.get(path[:length]) for length in range(1, len(path)))
        for one in (one for one in shorter if one is not None and adds_to(one.path, path)):
            head = FileSnapshot.of(one.path).head
            if head.startswith(met.head) or met.head.startswith(head):
                before, looks = self._copies.pop(path, (-1, 0))
                looks = looks + 1 if before == met.size else 0
                if looks < (PACKED_LOOKS if is_compressed(path) else COPY_LOOKS):
                    self._copies[path] = met.size, looks
                    return True
        return False

    # Log messages.

    def _tell_change(self, one: FollowedFile, progress: Progress) -> None:
        position = one.position(progress)
        rest = max(0, one.seen - position)
        if one.emptied:
            log.warning(
                "%s was emptied or written anew: what it holds now is read from its start; of what it held, %s",
                escape(one.path),
                "the rest is read of a copy" if one.continued else f"at least {rest} bytes were not read and are lost",
            )
        elif one.id.source in self._gone and not one.continued:
            self._told.add(one.id.source)
            is_read = one.reached(position) if one.unpacked is not None else not rest
            log.log(
                logging.INFO if is_read else logging.WARNING,
                "%s is gone (deleted, compressed, or moved to another directory?): at least %d bytes of it were not "
                "read; it is read on if it comes back",
                escape(one.path),
                rest,
            )

    def _tell_missing(self) -> None:
        """Warn about files of the checkpoint that are gone and whose path no other file has."""
        there = {one.id.path for one in self.live.values()} | {one.path for one in self.live.values()}
        missing = sorted({one.id.path for one in self._gone.values() if not one.continued} - there)
        if missing:
            log.warning(
                "%d file(s) are gone that were read before (%s%s): what they gained since is not read, unless they "
                "come back",
                len(missing),
                ", ".join(map(escape, missing[:3])),
                " ..." if len(missing) > 3 else "",
            )

    def _tell_once(self, path: str, text: str, *values: object) -> None:
        if path not in self._told:
            self._told.add(path)
            log.warning(text, escape(path), *values)


def _lay_there(one: FollowedFile, met: FileSnapshot) -> bool:
    """Whether a file of a checkpoint had this path and inode, so that it was emptied while the topology did not run."""
    return one.device is None and one.id.path == met.path and one.id.inode == met.inode


def _before_end(path: str, position: int) -> int:
    """Return where to begin with a file that was read up to ``position`` under another name.

    This is one byte earlier if no line starts there. So a plan soon names the new source, which is then known, even if
    nothing of it is left to read.
    """
    if position < 2:
        return position
    with closing(open_content(path)) as file:
        return position if file.read_at(position - 2, 1, position - 2) == b"\n" else position - 1
