"""Measurements add up in any order, and cross processes unchanged."""

from __future__ import annotations

from sparkbolt.observe.measurements import Flow, Measurements, Process, TimeSpan


def measured(executed: int, start_ms: float, end_ms: float, pid: int) -> Measurements:
    made = Measurements(frames=1, frame_bytes=100)
    counts = made.flow("split", 0, "lines", "default")
    counts.executed, counts.execute_ms = executed, 2.5
    made.executed("split", 10.0, executed)
    made.worked("level 1", TimeSpan(start_ms, end_ms, end_ms - start_ms), Process("here", pid, 1000 * pid))
    return made


def test_two_stages_add_up() -> None:
    both = measured(2, 10, 20, 1)
    both.add(measured(3, 15, 40, 2))
    assert both.flows[Flow("split", 0, "lines", "default")].executed == 5
    assert both.execute["split"].count == 5
    assert both.spans == {"level 1": TimeSpan(10, 40, 35)}
    assert (both.frames, both.frame_bytes) == (2, 200)
    assert both.processes == {("here", 1): 1000, ("here", 2): 2000}
