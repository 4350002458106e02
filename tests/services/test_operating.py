"""``docs/operating.md`` is played: what a person on call does, and what may go wrong around that person meanwhile.

``sparkbolt ui``, each command, and the topology that dies are processes of their own, Kafka and Chromium are real. The
other topologies run in this process, with the session of all tests.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from sparkbolt import Topology
from sparkbolt.control.documents import ALL_TIME
from sparkbolt.control.operator import Operator
from sparkbolt.faces.cli.display import PlainLines
from sparkbolt.faces.cli.program import RunOutcome, log_to, perform
from sparkbolt.spark.checkpoint_files import open_files
from tests.browser.chromium import Visitor, chromium
from tests.patience import PATIENCE_SECS, TEST_SECS
from tests.services import night
from tests.services.test_kafka import create, produce

pytestmark = [pytest.mark.service, pytest.mark.timeout(TEST_SECS)]

ROOT = Path(__file__).parents[2]
TOKEN = "the-token-of-the-night"


class Command:
    """Runs ``sparkbolt`` in a folder, with a home of its own; what it has started is ended with it."""

    def __init__(self, folder: Path, home: Path, spark: Any) -> None:
        self.folder, self.home, self.spark = folder, home, spark
        own = {"SPARKBOLT_UI_TOKEN": TOKEN, "PYTHONPATH": str(ROOT), "COLUMNS": "160"}
        self.environment = {**os.environ, **own}
        self.threads = ThreadPoolExecutor()

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "sparkbolt", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECS,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self, topology: str, checkpoint: str) -> dict[str, Any]:
        """Start a topology of ``tests.services.night``, and return its entry."""
        options = ["--master", "local[2]", "--checkpoint", checkpoint, "--log-dir", f"{checkpoint}-log", "--detach"]
        said = self("run", f"tests.services.night:{topology}", *options)
        assert " is up; " in said
        [entry] = self.entries()
        return entry

    def run(self, topology: Topology, checkpoint: str, log_dir: str | None = None) -> dict[str, Any]:
        """Run a topology in this process, and return its entry when it is up."""
        place = self.folder / checkpoint

        def work() -> RunOutcome:
            with log_to(log_dir, topology):
                return perform(topology, PlainLines(io.StringIO()), spark=self.spark, checkpoint=place)

        ends = self.threads.submit(work)

        def running() -> dict[str, Any] | None:
            assert not ends.done(), ends.result()
            entries = [entry for entry in self.entries() if entry["checkpoint"] == str(place)]
            return next((entry for entry in entries if entry["state"] in ("active", "inactive")), None)

        entry: dict[str, Any] = until(running)
        return entry

    def entries(self) -> list[dict[str, Any]]:
        """What ``sparkbolt list --all`` shows; asked in this process, since it is asked again and again."""
        return [dict(entry) for entry in self.operator().topologies()]

    def operator(self) -> Operator:
        """One that has not looked yet."""
        return Operator(str(self.home), open_files=open_files)

    def entry(self, id_: str) -> dict[str, Any]:
        return next(entry for entry in self.entries() if entry["id"] == id_)

    def acked(self, id_: str, spout: str) -> int:
        """How many trees of a spout were acked since the first start."""
        return self.operator().document(id_)["windows"][ALL_TIME]["components"][spout]["acked"]

    def end(self) -> None:
        for entry in self.entries():
            if entry["control"] is not None and entry["pid"] != os.getpid():
                os.kill(entry["pid"], signal.SIGKILL)
            elif entry["control"] is not None:
                self.operator().kill(entry["id"], wait_secs=0, by="the test")
        self.threads.shutdown()

    @contextmanager
    def ui(self) -> Iterator[str]:
        """``sparkbolt ui`` at its URL."""
        with subprocess.Popen(
            [sys.executable, "-u", "-m", "sparkbolt", "ui", "--port", "0"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            said = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            assert said, "sparkbolt ui has not come up"
            try:
                yield said[0]
            finally:
                process.send_signal(signal.SIGINT)
                process.stdout.read()
                assert process.wait(PATIENCE_SECS) == 0


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """Pages are waited for as long as anything else."""
    expect.set_options(timeout=PATIENCE_SECS * 1000)
    yield
    expect.set_options(timeout=5000)


@pytest.fixture
def command(tmp_path: Path, home: Path, spark: Any) -> Iterator[Command]:
    made = Command(tmp_path, home, spark)
    yield made
    made.end()


def until(condition: Callable[[], Any]) -> Any:
    """What ``condition`` returns, as soon as that is something."""
    limit, pause = time.monotonic() + PATIENCE_SECS, threading.Event()
    while not (found := condition()):
        assert time.monotonic() < limit, "it never came"
        pause.wait(0.1)
    return found


def request(
    url: str, method: str, path: str, body: Any = None, *, token: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of one request."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE_SECS)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def messages(brokers: str, topic: str, number: int) -> list[dict[str, Any]]:
    """The first messages of a topic, when there are so many."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": brokers, "group.id": topic, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[dict[str, Any]] = []
    limit = time.monotonic() + PATIENCE_SECS
    while len(found) < number and time.monotonic() < limit:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(json.loads(message.value()))
    consumer.close()
    return found


def orders(first: int, number: int) -> list[bytes]:
    return [json.dumps({"order": f"order {one}", "amount": "12.50"}).encode() for one in range(first, first + number)]


def capacities(page: Page) -> dict[str, float]:
    """What the table of bolts shows."""
    rows = page.get_by_role("region", name="Bolts", exact=True).locator("tbody tr")
    found = {}
    for row in rows.all():
        share = re.match(r"([\d.]+)\s?%", row.locator("td").nth(3).inner_text().strip())
        found[row.locator("th a").inner_text()] = float(share[1]) if share else 0.0
    return found


@pytest.mark.campaign
def test_steps_of_the_night_page_work_from_a_slow_bolt_to_the_end(
    kafka: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"orders-{uuid.uuid4().hex[:6]}"
    create(kafka, topic)
    create(kafka, f"{topic}-billed")
    names = {"NIGHT_BROKERS": kafka, "NIGHT_ORDERS": topic, "NIGHT_BILLED": f"{topic}-billed"}
    for name, value in names.items():
        command.environment[name] = value
        monkeypatch.setenv(name, value)
    poison = json.dumps({"order": "the poisoned order", "amount": "a lot"}).encode()
    produce(kafka, topic, [*orders(0, 100), poison, *orders(100, 100)])
    first = command.start("shop", "state")
    with command.ui() as url, chromium() as browser:
        visitor = Visitor(browser, url)
        visitor.log_in(TOKEN)
        try:
            play(command, visitor, first, kafka, topic)
        finally:
            visitor.close()
    told = command("kill", "shop", "--wait", "120s")
    assert "nothing is left" in told
    assert {entry["state"] for entry in command.entries()} == {"dead", "ended"}


def play(command: Command, visitor: Visitor, first: dict[str, Any], kafka: str, topic: str) -> None:
    page = visitor.page

    # Is it well?
    page.get_by_role("link", name="shop", exact=True).click()
    expect(page.locator("h1")).to_contain_text("active")
    until(lambda: command.acked(first["id"], "orders") == 200)

    # What is slow?
    stats = json.loads(command("stats", "shop", "--window", "all", "--json"))
    busy = {name: one["capacity"] for name, one in stats["window"]["components"].items()}
    bolts = [one["id"] for one in stats["components"] if one["kind"] == "bolt"]
    assert sorted(bolts) == ["bill", "check", "price"]
    assert max(bolts, key=lambda name: busy[name] or 0.0) == "price", busy
    visitor.goto(f"/topologies/{first['id']}?window=:all-time")
    expect(page.get_by_role("region", name="Bolts", exact=True)).to_contain_text("price")
    on_the_page = capacities(page)
    assert max(on_the_page, key=lambda name: on_the_page[name]) == "price", on_the_page

    # What failed, and why? How is it given again?
    until(lambda: command.entry(first["id"])["gist"]["given_up"] == 1)
    assert "could not convert string to float: 'a lot'" in command("dlq", "list", "state")
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_label("Search").fill("poisoned")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name=f"{topic}/0@100").click()
    expect(page.locator(".notice.bad").first).to_contain_text("could not convert string to float: 'a lot'")
    page.get_by_label("amount").fill("7.00")
    page.get_by_role("button", name="Give it back").click()
    expect(page.locator(".ask")).to_contain_text("7.00")
    page.get_by_role("button", name="Give back").click()
    expect(page.get_by_role("status").first).to_contain_text("1 letter(s) go back into orders with edited values")
    billed = messages(kafka, f"{topic}-billed", 201)
    assert [one for one in billed if one["order"] == "the poisoned order"] == [
        {"order": "the poisoned order", "amount": 7.0}
    ]
    until(lambda: command.acked(first["id"], "orders") == 201)
    until(lambda: command.entry(first["id"])["gist"]["lag"] == 0)
    visitor.goto(f"/topologies/{first['id']}")
    expect(page.locator("[data-part=events]")).to_contain_text("1 letter(s) go back into orders with edited values")
    visitor.goto(f"/topologies/{first['id']}/dead-letters")
    expect(page.get_by_text("No dead letters are waiting")).to_be_visible()

    # It is stopped from reading, and dies; somebody starts it again.
    page.get_by_role("link", name="Deactivate").click()
    page.get_by_role("button", name="Deactivate").click()
    until(lambda: command.entry(first["id"])["state"] == "inactive")
    os.kill(first["pid"], signal.SIGKILL)
    until(lambda: command.entry(first["id"])["state"] == "dead")
    assert "is gone and has not reported how it ended" in command("list")
    visitor.goto("/")
    expect(page.locator("tbody tr", has_text=first["id"])).to_contain_text("dead")
    visitor.goto(f"/topologies/{first['id']}")
    expect(page.get_by_role("alert").first).to_contain_text("dead: its process")
    expect(page.locator("[data-part=sums]")).to_contain_text("201")

    second = command.run(night.shop(), "state")
    assert second["id"] != first["id"]
    produce(kafka, topic, orders(200, 20))
    until(lambda: command.entry(second["id"])["gist"]["lag"] >= 20)
    assert command.entry(second["id"])["state"] == "inactive"
    assert command.acked(second["id"], "orders") == 201
    visitor.goto(f"/topologies/{second['id']}")
    expect(page.locator("h1")).to_contain_text("inactive")
    command("activate", "shop")
    assert len(messages(kafka, f"{topic}-billed", 221)) == 221
    until(lambda: command.acked(second["id"], "orders") == 221)
    expect(page.locator("h1")).to_contain_text("shop active")
    command("restart", "shop")

    def kinds() -> set[str]:
        document = json.loads(request(visitor.url, "GET", f"/api/v2/topologies/{second['id']}")[2])
        return {event["kind"] for event in document["events"]}

    until(lambda: "restarted" in kinds())
    produce(kafka, topic, orders(220, 5))
    until(lambda: command.acked(second["id"], "orders") == 226)
    assert {"letters", "deactivated", "activated"} <= kinds()
    assert not visitor.complaints, "\n".join(visitor.complaints)
