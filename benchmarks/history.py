"""What the history of a topology costs.

How much more processor time does the word count take with all its measurements (flows, latencies, micro-batches, the
history) than without them? In one process and without Spark, so that nothing else counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import Options, in_turn
from benchmarks.text import Text, zipf_text
from benchmarks.words import class_bolts
from sparkbolt.driver.effects import Effect, Tell
from sparkbolt.observe.history import History
from sparkbolt.observe.measurements import FlowCounts
from sparkbolt.observe.recorder import Recorder
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.worker.meter import Meter

WORDS = 2_000_000
"""Of each round, at most."""


@contextmanager
def _unmeasured() -> Iterator[None]:
    """Let meters measure nothing."""
    nothing = FlowCounts()

    def ignore(*_: Any) -> None:
        """Measure nothing."""

    with (
        patch.object(Meter, "called", ignore),
        patch.object(Meter, "end", ignore),
        patch.object(Meter, "output", lambda *_: nothing),
    ):
        yield


class Recorded(LocalEngine):
    """Records its history, if it has a recorder."""

    recorder: Recorder | None = None

    def perform(self, effect: Effect) -> Any:
        """Perform an effect of the machine."""
        if isinstance(effect, Tell) and self.recorder is not None:
            observed = self.coordinator.observed
            observed.times.promoted_ms = self.now_ms
            self.recorder.promoted(effect.promotion, self.ledger.metrics, observed)
        return super().perform(effect)


def cpu_secs(text: Text, *, measured: bool) -> float:
    """The processor time of a word count of a text, in seconds."""
    engine = Recorded(class_bolts(text), now_ms=1_800_000_000_000)
    history = History()
    if measured:
        engine.recorder = Recorder(history, engine.ledger.metrics, engine.now_ms)
    began = time.process_time()
    while engine.step() is not None:
        engine.now_ms += 6000
        if measured:
            history.changed_files(engine.now_ms)
    spent = time.process_time() - began
    done = engine.ledger.metrics.of("count").executed
    engine.close()
    if done != text.words:
        raise RuntimeError(f"{done} words were counted, the text has {text.words}")
    return spent


def figures(options: Options) -> Iterator[Figure]:
    """Measure: with and without measurements, in turn."""
    text = zipf_text(min(options.words, WORDS))

    def without() -> float:
        with _unmeasured():
            return cpu_secs(text, measured=False)

    runs: tuple[Callable[[], float], ...] = (lambda: cpu_secs(text, measured=True), without)
    cpu_secs(text, measured=True)  # warms up
    measured, bare = in_turn(options.rounds, *runs)
    facts = {"words": text.words}
    yield Figure("history", "processor time with measurements", measured, "s", notes=facts)
    yield Figure("history", "processor time without", bare, "s")
    yield Figure("history", "time with against without", ratios(measured, bare), "times", Aim("at most", 1.01))
