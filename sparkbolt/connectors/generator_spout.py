"""GeneratorSpout: emits the items of an iterable that a function returns; an item's position is its index."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from sparkbolt.api.arguments import checked, field_names, function, whole
from sparkbolt.api.components import PartitionedSpout, TopologyContext
from sparkbolt.api.named_fields import Fields, row_of
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.base.exceptions import pass_on
from sparkbolt.connectors.argument_pickle import PicklesArguments
from sparkbolt.errors import ConfigError

MAKER = function("a function that returns an iterable, which is called again after a crash (did you call it yourself?)")


class GeneratorSpout(PicklesArguments, PartitionedSpout):
    """Emits the items of an iterable; each item is a list of values for the fields in ``outputs``, or has their names.

    ``make`` is a function ``make()`` or ``make(index, parallelism)``. Only task 0 reads the iterable of ``make()``.
    ``make(index, parallelism)`` is called for each task and returns that task's share. ``make`` must be
    deterministic: after a crash, and in each process that reads, it is called again, and the items that are already
    done are skipped. The iterable may be infinite. Sources are named ``generator-<index>``. The parallelism must not
    change within one checkpoint.

    ``count`` is the number of items of each iterable. Without it the driver also iterates, ahead of the plan, to find
    the end; each item is then created once in the driver and once in each process that reads. With it the driver
    creates no items; items beyond ``count`` are not read, and it is no error if there are fewer.

    An exception in the iterable fails the tree of that item and ends the iterable there.

    >>> def numbers(index, parallelism):
    ...     return range(index, 10, parallelism)
    >>> GeneratorSpout(numbers, outputs=["n"]).outputs
    ['n']
    """

    _opened = ("_parallelism", "_turn", "_ahead", "_cursors")

    first_budget = 100

    @checked
    def __init__(
        self,
        make: Annotated[Callable[..., Iterable[Any]], MAKER],
        outputs: Fields,
        *,
        count: Annotated[int, whole(0)] | None = None,
    ) -> None:
        """Check and store the arguments.

        Raises:
            ConfigError: ``make`` accepts neither no arguments nor two, ``outputs`` is not a list of names, or
                ``count`` is negative.
        """
        self.outputs = self.fields = field_names("outputs", outputs)
        self.make = make
        self.count = count
        self.shares = _takes_share(make)
        self._begin()

    def _begin(self) -> None:
        self._parallelism = 1
        self._turn = 0
        self._ahead: dict[str, _Cursor] = {}
        self._cursors: dict[str, _Cursor] = {}

    def _start(self, index: int) -> _Cursor:
        return _Cursor(self.make, (index, self._parallelism) if self.shares else ())

    def open(self, context: TopologyContext) -> None:
        """Store the parallelism."""
        self._parallelism = context.parallelism

    def prepare(self, context: TopologyContext) -> None:
        """Store the parallelism."""
        self._parallelism = context.parallelism

    @property
    def _tasks(self) -> int:
        return self._parallelism if self.shares else 1

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        """Plan the next items of each iterable: equal shares of the budget, and each plan starts with another task."""
        share = -(-budget // self._tasks)
        ranges: list[Range] = []
        for step in range(self._tasks):
            task = (self._turn + step) % self._tasks
            source = f"generator-{task}"
            start = progress.get(source, 0)
            end = self._end(source, task, start + min(share, budget))
            if end > start:
                ranges.append(Range(task, source, start, end))
                budget -= end - start
            if budget <= 0:
                break
        self._turn = (self._turn + 1) % self._tasks
        return sorted(ranges)

    def _end(self, source: str, task: int, wanted: int) -> int:
        """Return the wanted position, or the end of the iterable if it comes first."""
        if self.count is not None:
            return min(self.count, wanted)
        cursor = self._ahead.get(source)
        if cursor is None:
            cursor = self._ahead[source] = self._start(task)
        cursor.skip_to(wanted + 1)
        return min(cursor.position, wanted)

    def unread(self, progress: Mapping[str, int]) -> Mapping[str, bool] | None:
        """List the iterables of several tasks that are not planned to their ends; one alone holds up no other."""
        if self._tasks == 1:
            return None
        sources = (f"generator-{task}" for task in range(self._tasks))
        return {source: True for source in sources if not self._is_planned(source, progress)}

    def finished(self, progress: Mapping[str, int]) -> bool:
        """Whether each iterable is planned to its end."""
        return all(self._is_planned(f"generator-{task}", progress) for task in range(self._tasks))

    def _is_planned(self, source: str, progress: Mapping[str, int]) -> bool:
        """Whether an iterable is planned to its end."""
        planned = progress.get(source, 0)
        if self.count is not None:
            return planned >= self.count
        ahead = self._ahead.get(source)
        return ahead is not None and ahead.ended and planned >= ahead.position

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        """Yield the items of the range as (index, values)."""
        cursor = self._cursors.get(range_.source)
        if cursor is not None and cursor.position <= range_.start:
            del self._cursors[range_.source]
        else:
            cursor = self._start(range_.task)
        cursor.skip_to(range_.start)
        fields = tuple(self.fields)
        while cursor.position < range_.end and not cursor.ended:
            position = cursor.position
            item = cursor.next()
            if isinstance(item, BadRecord):
                if position >= range_.start:
                    yield item
            elif item is not None:
                row = row_of(item[0], fields)
                if row is not None and len(row) == len(fields):
                    yield position, row
                else:
                    yield BadRecord(
                        position,
                        f"item {position} of the generator is {item[0]!r:.80}, expected a list of "
                        f"{len(fields)} value(s) for the fields {self.fields}",
                    )
        kept = self._cursors.get(range_.source)
        if kept is None or kept.position <= cursor.position:
            self._cursors[range_.source] = cursor

    def cleanup(self) -> None:
        """Release the iterables."""
        self._cursors.clear()


class _Cursor:
    """A started iterable and the number of items that were taken from it."""

    def __init__(self, make: Callable[..., Iterable[Any]], arguments: tuple[int, ...]) -> None:
        self.position = 0
        self.ended = False
        self._make = make
        self._arguments = arguments
        self._iterator: Iterator[Any] | None = None

    def next(self) -> tuple[Any] | BadRecord | None:
        """Return the next item in a tuple of one, a ``BadRecord`` if the iterable raises, or None at the end."""
        try:
            if self._iterator is None:
                self._iterator = iter(self._make(*self._arguments))
            item = next(self._iterator)
        except StopIteration:
            self.ended = True
            return None
        except BaseException as error:  # noqa: BLE001  whatever user code raises fails one item
            pass_on(error)
            self.ended = True
            self.position += 1
            return BadRecord(self.position - 1, f"the generator raised {type(error).__name__}: {error}")
        self.position += 1
        return (item,)

    def skip_to(self, position: int) -> None:
        """Skip the items before ``position``, at most to the end."""
        while self.position < position and not self.ended:
            self.next()


def _takes_share(make: Callable[..., Any]) -> bool:
    """Whether ``make`` takes (index, parallelism)."""
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        return False
    for given, answer in (((), False), ((0, 1), True)):
        try:
            signature.bind(*given)
        except TypeError:
            continue
        return answer
    raise ConfigError(
        f"GeneratorSpout cannot call {make!r}{signature}: expected make() or make(index, parallelism); "
        "bind other arguments with functools.partial"
    )
