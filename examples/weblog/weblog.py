"""A web log: sessions of users, and alerts for sections of the site that fail, in a database.

    sparkbolt run weblog:topology --checkpoint state --detach

README.md shows how to run and operate it. These variables of the environment change where it reads and writes:

    WEBLOG_LOG    the log, perhaps a pattern       access.log
    WEBLOG_PAGES  the database of pages            sqlite:///pages.db?timeout=1
    WEBLOG_DB     the database of the results      sqlite:///weblog.db
"""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta

from sparkbolt import AsyncBolt, BasicBolt, Reject, TopologyBuilder, WindowedBolt
from sparkbolt.bolts import Lookup, SqlBolt
from sparkbolt.spouts import TextSpout

COMBINED = re.compile(r'(\S+) \S+ (\S+) \[([^\]]+)\] "(\S+) (\S+) [^"]*" (\S+) (\S+)')
FAILED_MIN = 5
"""From how many failures of a section in one minute on there is an alert."""


class Parse(BasicBolt):
    """A line becomes a hit. A line that is none will never become one: it is rejected, and not tried again."""

    outputs = ["user", "at", "path", "status", "size"]

    def execute(self, tup, collector):
        found = COMBINED.match(tup["line"])
        if found is None:
            raise Reject("no line of an access log")
        _, user, at, _, target, status, size = found.groups()
        try:
            at_ms = int(datetime.strptime(at, "%d/%b/%Y:%H:%M:%S %z").timestamp() * 1000)
            collector.emit([user, at_ms, target.partition("?")[0], int(status), int(size)])
        except ValueError as error:
            raise Reject(str(error)) from None


class WithSection(AsyncBolt):
    """Adds the section and the team of a page, from a database that somebody else maintains."""

    outputs = ["user", "at", "path", "status", "section", "team"]
    stateless = True

    def __init__(self, pages):
        self.pages = pages

    async def execute(self, tup, collector):
        page = await self.pages.get(tup["path"], {"section": "other", "team": "web"})
        collector.emit([tup["user"], tup["at"], tup["path"], tup["status"], page["section"], page["team"]])

    def cleanup(self):
        self.pages.close()


class Sessions(WindowedBolt):
    """What a user did until there was no hit for half an hour."""

    outputs = ["user", "began", "minutes", "hits", "paid"]

    def execute(self, window, collector):
        times, paths = window.column("at").to_pylist(), window.column("path").to_pylist()
        minutes = (max(times) - min(times)) / 60_000
        collector.emit([window.key, min(times), round(minutes, 1), len(times), "/pay" in paths])


class Alerts(WindowedBolt):
    """A section that failed often within a minute."""

    outputs = ["section", "minute", "team", "failed", "hits"]

    def execute(self, window, collector):
        failed = sum(status >= 500 for status in window.column("status").to_pylist())
        if failed >= FAILED_MIN:
            team = window.column("team").to_pylist()[0]
            collector.emit([window.key, window.start_ms, team, failed, len(window.column("status"))])


def build(log, pages, results):
    """The topology: lines, hits, hits with their section; sessions and alerts; tables."""
    sessions = Sessions().with_session_gap(timedelta(minutes=30)).with_key("user").with_timestamp_field("at")
    sessions = sessions.with_lag(timedelta(minutes=15))  # a hit may come so late, for example after a retry
    alerts = Alerts().with_tumbling_window(timedelta(minutes=1)).with_key("section").with_timestamp_field("at")
    alerts = alerts.with_lag(timedelta(minutes=2))
    builder = TopologyBuilder("weblog")
    builder.set_spout("lines", TextSpout(log, follow=True))
    builder.set_bolt("parse", Parse()).shuffle_grouping("lines")
    section = WithSection(Lookup.sql(pages, "pages", key="path", columns=["section", "team"], ttl_secs=10))
    builder.set_bolt("section", section).shuffle_grouping("parse")
    builder.set_bolt("sessions", sessions, parallelism=2).fields_grouping("section", ["user"])
    builder.set_bolt("alerts", alerts).fields_grouping("section", ["section"])
    table = SqlBolt(results, "sessions", mode="upsert", keys=["user", "began"], create=True)
    builder.set_bolt("session_table", table).shuffle_grouping("sessions")
    table = SqlBolt(results, "alerts", mode="upsert", keys=["section", "minute"], create=True)
    builder.set_bolt("alert_table", table).shuffle_grouping("alerts")
    return builder.build()


topology = build(
    os.environ.get("WEBLOG_LOG", "access.log"),
    os.environ.get("WEBLOG_PAGES", "sqlite:///pages.db?timeout=1"),  # a lock is waited for one second
    os.environ.get("WEBLOG_DB", "sqlite:///weblog.db"),
)

if __name__ == "__main__":
    topology.run()
