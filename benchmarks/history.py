"""What the history of a topology costs.

How much more processor time does the word count take with its history than without it? In one process and without
Spark, so that nothing else counts. What tasks do is counted in both cases: the totals come from these counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import Options, in_turn
from benchmarks.text import Text, zipf_text
from benchmarks.words import class_bolts
from sparkbolt.driver.effects import Effect, Tell
from sparkbolt.observe.history import History
from sparkbolt.observe.recorder import Recorder
from sparkbolt.sim.engine import LocalEngine

WORDS = 2_000_000
"""Of each round, at most."""


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

    runs: tuple[Callable[[], float], ...] = tuple(partial(cpu_secs, text, measured=wanted) for wanted in (True, False))
    cpu_secs(text, measured=True)  # warms up
    measured, bare = in_turn(options.rounds, *runs)
    facts = {"words": text.words}
    yield Figure("history", "processor time with a history", measured, "s", notes=facts)
    yield Figure("history", "processor time without", bare, "s")
    yield Figure("history", "time with against without", ratios(measured, bare), "times", Aim("at most", 1.01))
