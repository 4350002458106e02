"""PrintBolt: prints tuples to the terminal, one line for each."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sparkbolt.api.components import BasicBolt
from sparkbolt.api.tuples import Tuple

if TYPE_CHECKING:
    from sparkbolt.api.interfaces import BasicCollector


class PrintBolt(BasicBolt):
    r"""Prints one line for each tuple: ``count[0] {'word': 'be', 'count': 2}``.

    A line holds the task that emitted the tuple, the stream unless it is ``default``, and the fields.

    The output goes where ``print`` in a bolt writes. In the simulator and under ``local[...]`` this is the program's
    standard output; with ``sparkbolt run --json`` it is standard error, because standard output holds only JSON. On a
    cluster it is the executor's ``stderr`` log. A micro-batch that runs again prints its tuples again.

    >>> from sparkbolt import TopologyBuilder
    >>> from sparkbolt.spouts import GeneratorSpout
    >>> from sparkbolt.testing import TopologyTestDriver
    >>> builder = TopologyBuilder("printing")
    >>> _ = builder.set_spout("count", GeneratorSpout(list, outputs=["word"]))
    >>> _ = builder.set_bolt("print", PrintBolt()).shuffle_grouping("count")
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     driver.feed("count", {"word": "be\nbe"})
    ...     driver.run_until_idle()
    count[0] {'word': 'be\nbe'}
    """

    stateless = True
    ignores_ticks = True
    flush_anywhere = True

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Print the tuple with one write, so that lines of several tasks do not mix."""
        stream = "" if tup.source_stream == "default" else f" {tup.source_stream}"
        sys.stdout.write(f"{tup.source_component}[{tup.source_task}]{stream} {dict(tup)!r}\n")

    def flush(self) -> None:
        """Flush standard output."""
        sys.stdout.flush()
