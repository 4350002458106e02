"""The command of the campaign: ``scripts/chaos --kills 100``.

Exit codes: 0 nothing was wrong; 1 something was, and its lines, logs and checkpoint are kept; 2 wrong use.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from tests.chaos.books import BOOKS
from tests.chaos.campaign import Campaign, Outcome

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; its exit code."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description="A campaign of kill -9 on local Spark.")
    parser.add_argument("--kills", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="from which victims and moments are drawn (default: 1)")
    parser.add_argument("--minutes", type=float, help="begin no further kill after that time (default: no limit)")
    parser.add_argument(
        "--topology", choices=sorted(BOOKS), default="diamond", help="what is killed (default: diamond)"
    )
    parser.add_argument("--driver-only", action="store_true", help="kill the driver each time")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(arguments)

    def tell(event: dict[str, Any]) -> None:
        print(json.dumps(event) if options.json else line_of(event), flush=True)

    campaign = Campaign(
        options.seed,
        options.kills,
        tell,
        options.minutes,
        topology=options.topology,
        driver_only=options.driver_only,
    )
    outcome = campaign.run()
    if options.json:
        print(json.dumps(outcome.to_json()))
    else:
        print("\n".join(summary_of(outcome, str(campaign.directory))))
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
