"""Windows and joins with streams as functions; what stands before the blank line are the program's own parts."""

from sparkbolt import Session, Sliding, TopologyBuilder, TupleWindow, minutes, seconds
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.spouts import JsonLinesSpout


def my_function(window: TupleWindow) -> float:
    """The average of the values of a window."""
    values: list[float] = [tup.value for tup in window]
    return sum(values) / len(values)


builder = TopologyBuilder("visits")
clicks = builder.stream(JsonLinesSpout("clicks.jsonl", outputs=["user", "at", "path"]), name="clicks")
purchases = builder.stream(JsonLinesSpout("purchases.jsonl", outputs=["user", "at", "amount"]), name="purchases")
readings = builder.stream(JsonLinesSpout("readings.jsonl", outputs=["sensor", "at", "value"]), name="readings")
table, late_file = JsonLinesBolt("visits"), JsonLinesBolt("late")

visits = clicks.key_by("user").window(Session(gap=minutes(30), timestamp="at", lag=seconds(10), late="late"))
visits.aggregate(pages=("path", "count"), last=("at", "max")).to(table)
visits.late.to(late_file)
bought = clicks.join(purchases, on="user", within=minutes(10), timestamp="at", name="bought")
averages = readings.key_by("sensor").window(Sliding(seconds=20, every=seconds(10), timestamp="at")).apply(my_function)
