"""``sparkbolt lag``: how far behind the Kafka spouts of a topology are.

It only asks the brokers and the store of offsets; neither Spark nor the running topology is needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sparkbolt.api.topology import Topology
from sparkbolt.connectors.kafka.kafka_spout import KafkaSpout
from sparkbolt.connectors.kafka.offset_lag import Lag, lags_of, missing_topics
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli.program import EXIT_FINISHED
from sparkbolt.faces.cli.resolver import topology_of
from sparkbolt.faces.cli.tables import Sheet
from sparkbolt.faces.cli.texts import show

_TITLES = ("source", "stored", "end", "ahead", "lag", "stored by")


def lag(topology: str, *, json: bool = False) -> int:
    """Show the lag of Kafka spouts.

    Args:
        topology: its code, such as word_count:topology or word_count.py; or a topology that run has started.
        json: print one JSON object per line for each spout.
    """
    show(report(topology_of(topology), as_json=json))
    return EXIT_FINISHED


def report(topology: Topology, *, as_json: bool) -> list[str]:
    """The lines to print: a table for each Kafka spout, or one JSON object for each.

    Raises:
        WrongUseError: the topology has no Kafka spout.
        BrokersAwayError: the brokers do not answer.
    """
    spouts = {spec.id: spec.component for spec in topology.spouts if isinstance(spec.component, KafkaSpout)}
    if not spouts:
        raise WrongUseError(f"topology {topology.name!r} has no KafkaSpout, so it has no lag to show")
    lines: list[str] = []
    for name, spout in spouts.items():
        lags = lags_of(spout)
        missing = missing_topics(spout, lags)
        lines += (
            [_line(name, spout.group, lags, missing)] if as_json else [*_table(name, spout.group, lags), *missing, ""]
        )
    return lines if as_json else lines[:-1]


def _line(name: str, group: str, lags: Sequence[Lag], missing: Sequence[str]) -> str:
    sources = [
        {"source": lag.source, "stored": lag.stored, "first": lag.first, "end": lag.end, "ahead": lag.ahead}
        | {"lag": lag.lag, "stored_by": lag.owner}
        for lag in lags
    ]
    known = _known(lags) if lags else None
    return json.dumps({"spout": name, "group": group, "lag": known, "sources": sources, "missing": list(missing)})


def _table(name: str, group: str, lags: Sequence[Lag]) -> list[str]:
    rows = [
        (
            lag.source,
            "-" if lag.stored is None else str(lag.stored),
            "?" if lag.end is None else str(lag.end),
            str(lag.ahead),
            "?" if lag.lag is None else str(lag.lag),
            lag.owner or "-",
        )
        for lag in lags
    ]
    if not lags:
        return [f"{name}  group {group}  lag ?"]
    more = " + ?" if any(lag.lag is None for lag in lags) else ""
    head = f"{name}  group {group}  lag {_known(lags)}{more}"
    return [head, *Sheet(_TITLES, tuple(rows), right=_TITLES[1:-1]).lines()]


def _known(lags: Sequence[Lag]) -> int:
    return sum(lag.lag or 0 for lag in lags)
