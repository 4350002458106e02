"""A crawler over a generated web: each page is fetched once, and the links that it has go back to the beginning.

    python examples/crawler.py                          # 100,000 pages, ends by itself
    python examples/crawler.py --pages 5000 --checkpoint state/crawler

    seeds -> frontier -> fetch
                <----------+    feedback=True: the links of a page ride the next micro-batch

The frontier keeps the pages that it has seen, so each is fetched once. A link is anchored to the page that has it: the
tree of a seed is acked when all pages that were found from it are fetched. Kill it with ``kill -9`` in the middle and
start it again with the same checkpoint: it goes on, and fetches no page again that it had finished.
"""

from __future__ import annotations

import argparse
import time
import zlib

from sparkbolt import BasicBolt, Config, PartitionedSpout, Range, Topology, TopologyBuilder

LINKS = 4


def links_of(page: int, pages: int) -> list[int]:
    """The pages that a page links to: its children in a tree of all pages, and some that look random."""
    children = [child for child in (2 * page + 1, 2 * page + 2) if child < pages]
    return children + [zlib.crc32(f"{page}/{link}".encode()) % pages for link in range(LINKS - 2)]


class Seeds(PartitionedSpout):
    """The pages at which the crawl begins."""

    outputs = ["url"]

    def __init__(self, seeds):
        self.seeds = list(seeds)

    def next_ranges(self, progress, budget):
        done = progress.get("seeds", 0)
        end = min(len(self.seeds), done + budget)
        return [Range(0, "seeds", done, end)] if done < end else []

    def finished(self, progress):
        return progress.get("seeds", 0) >= len(self.seeds)

    def read(self, range_):
        for position in range(range_.start, range_.end):
            yield position, [self.seeds[position]]


class Frontier(BasicBolt):
    """Passes on each page once."""

    outputs = ["url"]

    def init_state(self, state):
        self.seen = state

    def execute(self, tup, collector):
        url = tup["url"]
        if url not in self.seen:
            self.seen.put(url, True)
            collector.emit([url])


class Fetch(BasicBolt):
    """Gets a page, and emits the links that it has."""

    outputs = ["url"]
    stateless = True

    def __init__(self, pages):
        self.pages = pages

    def execute(self, tup, collector):
        page = int(tup["url"].rpartition("/")[2])
        for link in links_of(page, self.pages):
            collector.emit([f"https://web.example/{link}"])


def build(pages: int = 100_000, tasks: int = 2) -> Topology:
    """The topology: seeds, frontier with some tasks, fetch, and back to the frontier."""
    builder = TopologyBuilder("crawler", Config(message_timeout_secs=3600))
    builder.set_spout("seeds", Seeds(["https://web.example/0"]))
    frontier = builder.set_bolt("frontier", Frontier(), parallelism=tasks)
    frontier.fields_grouping("seeds", ["url"]).fields_grouping("fetch", ["url"], feedback=True)
    builder.set_bolt("fetch", Fetch(pages), parallelism=2).shuffle_grouping("frontier")
    return builder.build()


def main() -> None:
    """Run the topology and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pages", type=int, default=100_000, help="the size of the web (default %(default)s)")
    parser.add_argument("--checkpoint", help="a directory for durable state; default: a temporary one")
    parser.add_argument("--master", default="local[2]", help="as of spark-submit (default %(default)s)")
    arguments = parser.parse_args()

    started = time.monotonic()
    metrics = build(arguments.pages).run(checkpoint=arguments.checkpoint, master=arguments.master)
    elapsed = time.monotonic() - started

    seeds, frontier, fetch = (metrics.components[name] for name in ("seeds", "frontier", "fetch"))
    print(f"\n{fetch.executed:,} pages fetched, {frontier.executed - seeds.emitted:,} links followed, {elapsed:.1f} s")
    print(f"{metrics.micro_batches} micro-batches; seeds acked {seeds.acked}, failed {seeds.failed}")


if __name__ == "__main__":
    main()
