"""The command line of the benchmarks: `python -m benchmarks NAME [--json]`."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from pathlib import Path

from benchmarks.figures import Figure, Printer
from benchmarks.runs import Options

NAMES = (
    "words",
    "columns",
    "since",
    "floor",
    "budget",
    "latency",
    "target",
    "start",
    "ledger",
    "driver",
    "state",
    "windows",
    "kafka",
    "memory",
    "attributes",
    "kernels",
    "scale",
    "simulate",
    "history",
    "transactions",
    "ui",
    "peers",
)


def count(text: str) -> int:
    """A number that may end in k or M.

    >>> count("20M"), count("300k"), count("17")
    (20000000, 300000, 17)
    """
    match = re.fullmatch(r"(\d+)([kM]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a number such as 300k or 20M, got {text!r}")
    return int(match[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[match[2]]


def main(arguments: list[str] | None = None) -> int:
    """Run the named benchmarks; the exit code says only whether they ran."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure, and compare with the aims.")
    parser.add_argument("name", nargs="?", choices=(*NAMES, "all"), help="which benchmark")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--words", type=count, default=Options.words, help="how many words the text has (default 40M)")
    parser.add_argument("--rounds", type=int, default=Options.rounds, help="turns of each contender (default 3)")
    parser.add_argument("--secs", type=int, default=Options.secs, help="how long a slow bolt runs (default 240)")
    parser.add_argument("--commit", default=Options.commit, help="of since: what to compare with (default %(default)s)")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="of scale: write its picture and tables there")
    options = parser.parse_args(arguments)
    if options.report is not None and options.name != "scale":
        parser.error("--report is for scale")
    if options.name is None:
        parser.print_help()
        return 0
    printer = Printer(options.json)
    printer.machine()
    found: list[Figure] = []
    for name in NAMES if options.name == "all" else (options.name,):
        module = importlib.import_module(f"benchmarks.{name}")
        for figure in module.figures(Options(options.words, options.rounds, options.secs, options.commit)):
            printer.figure(figure)
            found.append(figure)
    if options.report is not None:
        importlib.import_module("benchmarks.scale_report").report(found, options.report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
