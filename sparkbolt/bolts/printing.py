"""Tuples on the terminal.

Which question it answers: where does a user see what a bolt prints?
Rule: one tuple is one line.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sparkbolt.core.model.components import BasicBolt
from sparkbolt.core.model.tuples import Tuple

if TYPE_CHECKING:
    from sparkbolt.core.model.interfaces import BasicCollector


class PrintBolt(BasicBolt):
    r"""Prints one line for each tuple: ``count[0] {'word': 'be', 'count': 2}``.

    First comes the task that emitted it, then the stream unless it is ``default``, then the fields.

    It prints as ``print`` in a bolt does: in the simulator and under ``local[...]`` the lines come out of the
    program's own standard output (of standard error with ``sparkbolt run --json``, whose output is JSON alone),
    on a cluster they are in the executor's ``stderr`` log. A micro-batch that runs again prints again.

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
    flush_anywhere = True

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Print the tuple, as one write, so that the lines of several tasks do not run into each other."""
        stream = "" if tup.source_stream == "default" else f" {tup.source_stream}"
        sys.stdout.write(f"{tup.source_component}[{tup.source_task}]{stream} {dict(tup)!r}\n")

    def flush(self) -> None:
        """Show what was printed."""
        sys.stdout.flush()
