"""Writes an access log as a web server does, and the database of pages; some of its lines are broken.

python make_log.py access.log              # three hours of one shop's traffic, and pages.db
python make_log.py access.log --more 600   # ten more minutes
"""

from __future__ import annotations

import argparse
import random
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

PAGES = {
    "/": ("home", "web"),
    "/search": ("search", "search"),
    "/shoes": ("catalogue", "shop"),
    "/hats": ("catalogue", "shop"),
    "/cart": ("checkout", "payments"),
    "/pay": ("checkout", "payments"),
}
"""By path: the section, and the team that is called at night."""
VISITORS = 1000
SECS_BETWEEN_VISITS = 6.0
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36"
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
TROUBLE = timedelta(hours=1)
"""When the checkout begins to fail, for five minutes."""


def line(chance: random.Random, at: datetime, user: str) -> str:
    """One line in the combined format; about one in two hundred and fifty is broken."""
    path = chance.choices([*PAGES, "/robots.txt"], [20, 15, 25, 20, 10, 5, 1])[0]
    fails = TROUBLE <= at - START < TROUBLE + timedelta(minutes=5) and path in ("/cart", "/pay")
    status = 503 if fails and chance.random() < 0.8 else chance.choices([200, 304, 404], [90, 8, 2])[0]
    size = str(chance.randrange(200, 60_000))
    broken = chance.randrange(500)
    if broken == 0:
        size = "n/a"  # a proxy that does not know it
    query = f"?q={chance.choice(['red', 'blue', 'size+42'])}" if path == "/search" else ""
    text = (
        f'203.0.113.{chance.randrange(1, 255)} - {user} [{at:%d/%b/%Y:%H:%M:%S %z}] "GET {path}{query} HTTP/1.1" '
        f'{status} {size} "https://shop.example/" "{AGENT}"'
    )
    return text[: chance.randrange(20, 60)] if broken == 1 else text  # the disk was full


def write(path: Path, begin: datetime, secs: int, chance: random.Random) -> int:
    """Append the lines of the visits that begin in some seconds, in order, and return how many there are."""
    hits, since = [], 0.0
    while (since := since + chance.expovariate(1 / SECS_BETWEEN_VISITS)) < secs:
        user, at = f"user-{chance.randrange(VISITORS):03}", since
        for _ in range(chance.randrange(1, 12)):
            if at < secs:
                hits.append((at, user))
            at += chance.uniform(1, 60)
    with path.open("a") as file:
        file.writelines(line(chance, begin + timedelta(seconds=at), user) + "\n" for at, user in sorted(hits))
    return len(hits)


def make_pages(path: Path) -> None:
    """Write the database of pages."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE pages (path TEXT PRIMARY KEY, section TEXT, team TEXT)")
        database.executemany("INSERT INTO pages VALUES (?, ?, ?)", [(page, *row) for page, row in PAGES.items()])
    database.close()


def main() -> None:
    """Write the log and the database."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("--more", type=int, default=0, metavar="SECS", help="add so many seconds to a log that exists")
    options = parser.parse_args()
    last = Path(f"{options.log}.until")
    begin = datetime.fromisoformat(last.read_text()) if options.more else START
    secs = options.more or 3 * 3600
    if not options.more:
        options.log.unlink(missing_ok=True)
    count = write(options.log, begin, secs, random.Random(begin.timestamp()))
    last.write_text((begin + timedelta(seconds=secs)).isoformat())
    pages = options.log.parent / "pages.db"
    if not pages.exists():
        make_pages(pages)
    print(f"{count} lines")


if __name__ == "__main__":
    main()
