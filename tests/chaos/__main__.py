"""The command of the campaign: ``scripts/chaos --kills 100``.

Exit codes: 0 nothing was wrong; 1 something was, and its lines, logs and checkpoint are kept; 2 wrong use.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from tests.chaos.campaign import Campaign, Outcome
from tests.chaos.kafka_campaign import KafkaCampaign
from tests.chaos.kafka_campaign import Outcome as KafkaOutcome

SHOWN_MAX = 10


def line_of(event: dict[str, Any]) -> str:
    """A plain line for an event."""
    found = "; ".join(event["wrong"][:SHOWN_MAX]) or "nothing wrong"
    numbers = f"{event['acked']:,} of {event['fed']:,} lines acked, {event['failed']} failed, {event['open']} open"
    if event["event"] == "settled":
        numbers = f"all {event['fed']:,} lines acked, {event['done']}"
        return f"         {event['at_s']:7.1f} s  settled: {numbers if not event['wrong'] else found}"
    went_on = "a new driver, " if event["new_drivers"] else ""
    return (
        f"kill {event['number']:3} {event['at_s']:7.1f} s  {event['what']} ({event['where']}): {went_on}two "
        f"micro-batches later after {event['survived_s']:.1f} s; {numbers}; {found}"
    )


def summary_of(outcome: Outcome, kept: str) -> list[str]:
    """What a campaign has found, in lines."""
    victims = ", ".join(f"{count} {victim}" for victim, count in outcome.victims.most_common())
    moments = ", ".join(f"{count} {moment}" for moment, count in outcome.moments.most_common())
    lines = [
        f"{outcome.kills} kills in {outcome.elapsed_s:.0f} s ({outcome.kills_per_minute:.1f} a minute), seed "
        f"{outcome.seed}: {victims or 'none'}; aimed: {moments or 'none'}",
        f"{outcome.starts} starts of a driver; {outcome.settled} times settled and checked; {outcome.lines:,} lines, "
        f"{outcome.done}, {outcome.failed} failed trees",
    ]
    if outcome.wrong:
        shown = [f"WRONG: {text}" for text in outcome.wrong[:SHOWN_MAX]]
        more = len(outcome.wrong) - len(shown)
        return [*lines, *shown, *([f"and {more} more"] if more else []), f"kept for a look: {kept}"]
    return [*lines, "nothing was wrong"]


def kafka_line_of(event: dict[str, Any]) -> str:
    """A plain line for an event of the campaign on Kafka."""
    what = event["event"]
    if "number" in event:
        done = {"driver": "driver killed", "broker": "broker killed"}.get(what, "driver stopped")
        what = f"{event['number']:2} {done} {event['where']}; it went on after {event['took_s']:.1f} s"
    numbers = f"{event['processed']:,} of {event['messages']:,} processed, {event['committed']:,} committed"
    return f"{event['at_s']:7.1f} s  {numbers}: {what}; wrong: {event['wrong']}"


def kafka_summary_of(outcome: KafkaOutcome, kept: str) -> list[str]:
    """What a campaign on Kafka has found, in lines."""
    lines = [
        f"{outcome.messages:,} messages produced in {outcome.produced_s:.0f} s, processed in "
        f"{outcome.running_s:.0f} s; {outcome.elapsed_s:.0f} s in all, seed {outcome.seed}",
        f"{outcome.driver_kills} kills of the driver, {outcome.broker_kills} of the broker, "
        f"{outcome.clean_stops} clean stops, {outcome.starts} starts",
        f"{outcome.processed:,} processed, {outcome.dead_letters} dead letters; {outcome.repeated:,} given again after "
        f"a kill, {outcome.written_twice:,} twice in the output",
        f"lag {outcome.lag}, group offsets {list(outcome.offsets.values())}, "
        f"compared {outcome.checks:,} times on the way",
        f"wrong: {outcome.wrong[:SHOWN_MAX]}",
    ]
    return [*lines, f"kept for a look: {kept}"] if outcome.wrong else lines


def count_of(text: str) -> int:
    """A number such as ``20000``, ``20k`` or ``2M``.

    >>> count_of("2M"), count_of("20k"), count_of("8")
    (2000000, 20000, 8)
    """
    unit = {"k": 1000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    return int(float(text[: -1 if unit > 1 else None]) * unit)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; its exit code."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description="A campaign of kill -9 on local Spark.")
    parser.add_argument("--kills", type=int, default=100, help="how many (default: 100); of the driver with kafka")
    parser.add_argument("--seed", type=int, default=1, help="from which victims and moments are drawn (default: 1)")
    parser.add_argument("--minutes", type=float, help="begin no further kill after that time (default: no limit)")
    parser.add_argument(
        "--topology", choices=["diamond", "kafka"], default="diamond", help="what is killed (default: diamond)"
    )
    parser.add_argument("--messages", type=count_of, default=20_000, help="of kafka, such as 2M (default: 20k)")
    parser.add_argument("--broker-kills", type=int, default=1, help="of kafka (default: 1)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(arguments)

    def tell(event: dict[str, Any]) -> None:
        print(json.dumps(event) if options.json else line_of(event), flush=True)

    if options.topology == "kafka":
        return on_kafka(options)
    campaign = Campaign(options.seed, options.kills, tell, options.minutes)
    outcome = campaign.run()
    if options.json:
        print(json.dumps(outcome.to_json()))
    else:
        print("\n".join(summary_of(outcome, str(campaign.directory))))
    return 1 if outcome.wrong else 0


def on_kafka(options: argparse.Namespace) -> int:
    """Run a campaign on Kafka; its exit code."""

    def tell(event: dict[str, Any]) -> None:
        print(json.dumps(event) if options.json else kafka_line_of(event), flush=True)

    campaign = KafkaCampaign(options.seed, options.messages, options.kills, options.broker_kills, tell)
    outcome = campaign.run()
    if options.json:
        print(json.dumps(outcome.to_json()))
    else:
        print("\n".join(kafka_summary_of(outcome, str(campaign.directory))))
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
