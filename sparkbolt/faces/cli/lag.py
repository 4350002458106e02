"""``sparkbolt lag``: how far behind the spouts of a topology are.

For the Kafka spouts of a module it only asks the brokers and the store of offsets; neither Spark nor the running
topology is needed. For a topology that runs or has run, it shows the last lag that its spouts have reported.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sparkbolt.api.topology import Topology
from sparkbolt.base.source_names import short_sources
from sparkbolt.connectors.kafka.kafka_spout import KafkaSpout
from sparkbolt.connectors.kafka.offset_lag import Lag, lags_of, missing_topics
from sparkbolt.control.documents import TopologyDocument
from sparkbolt.control.lags import lag_text
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli.operate.operator_access import operator_of
from sparkbolt.faces.cli.program import EXIT_FINISHED
from sparkbolt.faces.cli.resolver import entry_of, is_code, topology_of
from sparkbolt.faces.cli.tables import Sheet
from sparkbolt.faces.cli.texts import show

_TITLES = ("source", "stored", "end", "ahead", "lag", "stored by")


def lag(topology: str, *, home: str | None = None, json: bool = False) -> int:
    """Show how far behind spouts are.

    Args:
        topology: the name or id of a topology, as list shows it, or its checkpoint, for the lag that its spouts
            reported last; or its code, such as word_count:topology or word_count.py, to ask the brokers of its Kafka
            spouts.
        home: the directory in which topologies are registered (default: SPARKBOLT_HOME, or ~/.local/state/sparkbolt).
        json: print one JSON object per line for each spout.
    """
    if is_code(topology):
        show(report(topology_of(topology), as_json=json))
        return EXIT_FINISHED
    operator = operator_of(home)
    document = operator.document(entry_of(operator, topology)["id"])
    show(reported(document, as_json=json))
    return EXIT_FINISHED


def reported(document: TopologyDocument, *, as_json: bool) -> list[str]:
    """The lines to print about the lag that a topology's spouts have reported, as ``report``.

    Raises:
        WrongUseError: no spout has reported a lag.
    """
    now, entry = document["now"], document["entry"]
    spouts = [one for one in document["components"] if one["id"] in now["lag"]]
    if not spouts:
        raise WrongUseError(
            f"no spout of topology {entry['name']!r} has reported a lag: its sources do not tell their ends, or "
            "nothing was read yet"
        )
    lines: list[str] = []
    for one in spouts:
        lags, secs, unit = now["lag"][one["id"]], now["lag_secs"].get(one["id"], {}), one["position_unit"]
        if as_json:
            found = [{"source": source, "lag": lags[source], "secs": secs.get(source)} for source in sorted(lags)]
            lines.append(json.dumps({"spout": one["id"], "unit": unit, "lag": sum(lags.values()), "sources": found}))
            continue
        names = short_sources(lags)
        total = lag_text(sum(lags.values()), unit, max(secs.values(), default=None))
        rows = tuple((names[source], lag_text(lags[source], unit, secs.get(source))) for source in sorted(lags))
        table = Sheet(("source", "lag"), rows, right=("lag",)).lines() if rows else []
        lines += [f"{one['id']}  lag {total}", *table, ""]
    return lines if as_json else lines[:-1]


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
