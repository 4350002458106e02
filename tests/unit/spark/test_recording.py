"""The history of a running topology is written by a thread of its own, and a disk that is full costs nothing else."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.reports import Promotion
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.observe.history import History
from sparkbolt.observe.measurements import Measurements, Process
from sparkbolt.observe.recorder import Observed
from sparkbolt.spark import recording as recording_module
from sparkbolt.spark.recording import Recording
from tests.patience import PATIENCE_SECS


class FullDisk(MemoryFiles):
    full = True

    def __init__(self) -> None:
        super().__init__()
        self.refused, self.written = threading.Event(), threading.Event()

    def write(self, name: str, data: bytes) -> None:
        if self.full:
            self.refused.set()
            raise OSError(28, "No space left on device")
        super().write(name, data)
        if name == "history/micro-batches":
            self.written.set()


def coordinator(**counts: int) -> Any:
    metrics = TopologyMetrics({"lines": ComponentMetrics(**counts)})
    observed = Observed()
    observed.measured = Measurements(processes={("here", 1): 1000})
    return SimpleNamespace(observed=observed, ledger=SimpleNamespace(metrics=metrics))


def test_promoted_state_is_in_the_checkpoint_after_close() -> None:
    files = MemoryFiles()
    recording = Recording(files, TopologyMetrics())
    recording.promoted(coordinator(acked=3), Promotion(0))
    recording.close()
    again = History.load(files)
    assert again.all_time().components == {"lines": {"acked": 3}}


def test_a_full_disk_is_logged_once_and_the_history_is_written_when_it_has_space(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recording_module, "BEAT_SECS", 0.02)
    files = FullDisk()
    recording = Recording(files, TopologyMetrics())
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        recording.promoted(coordinator(acked=3), Promotion(0))
        recording.start(TopologyMetrics, lambda: None)
        assert files.refused.wait(PATIENCE_SECS)
        files.full = False
        recording.promoted(coordinator(acked=3), Promotion(1))
        assert files.written.wait(PATIENCE_SECS)
    recording.close()
    assert [record.message.count("it is tried again") for record in caplog.records] == [1]
    assert History.load(files).all_time().components == {"lines": {"acked": 3}}


def test_a_worker_that_has_stopped_reporting_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording(MemoryFiles(), TopologyMetrics())
    recording.promoted(coordinator(), Promotion(0))
    assert ("worker", Process("here", 1, 1000)) in recording.processes()
    assert next(kind for kind, _ in recording.processes()) == "driver"
    monkeypatch.setattr(recording_module, "SEEN_SECS", -1.0)
    assert [kind for kind, _ in recording.processes() if kind == "worker"] == []
