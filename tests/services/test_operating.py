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
from tests.services.night import FAILURES
from tests.services.test_kafka import create, produce

pytestmark = [pytest.mark.service, pytest.mark.timeout(TEST_SECS)]

ROOT = Path(__file__).parents[2]
TOKEN = "the-token-of-the-night"
WATCHERS = 20
LOG_BYTES = 1 << 30


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


def shown(url: str, path: str) -> str:
    """A page that answers 200: at once, or when a busy machine has got so far and the page no longer says 503."""
    status, body = until(lambda: (found := request(url, "GET", path))[0] != 503 and (found[0], found[2]))
    assert status == 200, f"{path} answers {status}: {body[:1000]!r}"
    return body.decode()


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
def test_the_page_for_the_night_is_played_from_a_slow_bolt_to_the_end(
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
    until(lambda: command.entry(first["id"])["gist"]["set_aside"] == 1)
    assert "could not convert string to float: 'a lot'" in command("dlq", "list", "state")
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_label("Search").fill("poisoned")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name=f"{topic}/0@100").click()
    expect(page.locator(".notice.bad").first).to_contain_text("could not convert string to float: 'a lot'")
    page.get_by_label("amount").fill('"7.00"')
    page.get_by_role("button", name="Replay this letter").click()
    expect(page.locator(".ask")).to_contain_text("7.00")
    page.get_by_role("button", name="Confirm replay").click()
    expect(page.get_by_role("status").first).to_contain_text("1 letter(s) replayed with edited values")
    billed = messages(kafka, f"{topic}-billed", 201)
    assert [one for one in billed if one["order"] == "the poisoned order"] == [
        {"order": "the poisoned order", "amount": 7.0}
    ]
    until(lambda: command.acked(first["id"], "orders") == 201)
    until(lambda: command.entry(first["id"])["gist"]["lag"] == 0)
    visitor.goto(f"/topologies/{first['id']}")
    expect(page.locator("[data-part=events]")).to_contain_text("1 letter(s) replayed with edited values")
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
    expect(page.get_by_role("alert").first).to_contain_text("The topology is dead")
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
    document = json.loads(request(visitor.url, "GET", f"/api/v2/topologies/{second['id']}")[2])
    kinds = [event["kind"] for event in document["events"]]
    assert {"letters", "deactivated", "activated"} <= set(kinds), kinds
    assert not visitor.complaints, "\n".join(visitor.complaints)


@pytest.mark.campaign
def test_nothing_hangs_and_nothing_lies_when_much_goes_wrong_at_once(command: Command) -> None:
    steady = command.run(night.steady(), "steady")["id"]
    failing = command.run(night.failing(), "failing", log_dir=str(command.folder / "failing-log"))["id"]
    with command.ui() as url:
        two_topologies_of_one_name(command, url, steady, failing)
        a_token_that_is_missing_or_wrong(command, url, steady)
        many_browsers(command, url, steady)
        until(lambda: command.entry(failing)["gist"]["set_aside"] == FAILURES)
        ten_thousand_failures(command, url, failing)
        a_home_that_is_gone_for_a_while(command, url, steady, failing)
        assert "nothing is left" in command("kill", failing, "--wait", "120s")
        ten_thousand_failures(command, url, failing)
        a_log_of_a_gigabyte(command, url, failing)
        before = command.entry(steady)["gist"]["acked"]
        until(lambda: command.entry(steady)["gist"]["acked"] > before)


def two_topologies_of_one_name(command: Command, url: str, *ids: str) -> None:
    assert set(ids) <= set(re.findall(r"night-\d+-\d+", command("list")))
    which = command("stats", "night", code=2)
    assert "2 topologies named 'night' run: use the id of one of them" in which
    assert set(ids) <= set(re.findall(r"night-\d+-\d+", which))
    assert request(url, "GET", "/topologies/night")[0] == 409
    assert request(url, "POST", "/api/v2/topologies/night/kill", {}, token=TOKEN)[0] == 409
    for id_ in ids:
        assert json.loads(command("stats", id_, "--window", "all", "--json"))["entry"]["id"] == id_
        assert id_ in shown(url, f"/topologies/{id_}")
        assert id_ in shown(url, "/")


def a_token_that_is_missing_or_wrong(command: Command, url: str, id_: str) -> None:
    for path in (f"/api/v2/topologies/{id_}/kill", f"/api/v1/topology/{id_}/deactivate", f"/topologies/{id_}/do/kill"):
        assert request(url, "POST", path, {})[0] in (401, 403), path
        assert request(url, "POST", path, {}, token="the-token-of-the-day")[0] in (401, 403), path
    assert command.entry(id_)["state"] == "active"
    assert request(url, "POST", f"/api/v2/topologies/{id_}/deactivate", token=TOKEN)[0] in (200, 202)
    until(lambda: command.entry(id_)["state"] == "inactive")
    assert request(url, "POST", f"/api/v2/topologies/{id_}/activate", token=TOKEN)[0] in (200, 202)
    until(lambda: command.entry(id_)["state"] == "active")


def many_browsers(command: Command, url: str, id_: str) -> None:
    """Each has a stream open and goes from page to page, until the topology has gone on for some micro-batches."""
    base = f"/topologies/{id_}"
    pages = [base, "/", f"{base}/components/pass", f"{base}/trees", f"{base}/micro-batches", f"{base}/log", "/metrics"]
    enough = threading.Event()
    wrong: list[str] = []
    seen: list[int] = []

    def browse(first: int) -> None:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE_SECS)
        try:
            connection.request("GET", f"/api/v2{base}/changes")
            stream = connection.getresponse()
            assert stream.status == 200, stream.read()
            number = first
            while not enough.is_set():
                shown(url, pages[number % len(pages)])
                number += 1
            while not stream.readline().startswith(b"event: numbers"):
                pass
            seen.append(number - first)
        except BaseException as error:  # noqa: BLE001  told below, for all of them
            wrong.append(repr(error))
        finally:
            connection.close()

    threads = [threading.Thread(target=browse, args=(number,)) for number in range(WATCHERS)]
    before = command.entry(id_)["gist"]
    for thread in threads:
        thread.start()
    try:
        until(lambda: wrong or command.entry(id_)["gist"]["micro_batches"] >= before["micro_batches"] + 5)
    finally:
        enough.set()
        for thread in threads:
            thread.join(PATIENCE_SECS)
    assert not wrong, "\n".join(wrong)
    assert len(seen) == WATCHERS
    assert min(seen) > 0
    assert command.entry(id_)["gist"]["acked"] > before["acked"]


def ten_thousand_failures(command: Command, url: str, id_: str) -> None:
    base = f"/topologies/{id_}"
    for page in ("", "/errors", "/trees", "/trees?q=19997", "/trees?page=40", "/dead-letters", "/dead-letters?page=40"):
        assert "night" in shown(url, f"{base}{page}")
    assert "19997 is no good" in shown(url, f"{base}/trees?q=numbers@19997")
    found = shown(url, f"{base}/dead-letters?q=numbers@19997")
    letter = re.search(rf"{base}/dead-letters/([0-9a-f]{{32}})", found)
    assert letter
    assert "ValueError: 19997 is no good" in shown(url, f"{base}/dead-letters/{letter[1]}")
    [story] = json.loads(request(url, "GET", f"/api/v2{base}/stories?search=numbers@19997")[2])
    assert "19997 is no good" in story["why"]
    assert "19999 is no good" in command("errors", "failing", "--last", "1")
    assert f"{FAILURES} dead letter(s)" in command("dlq", "list", "failing").replace(",", "")
    numbers = json.loads(command("stats", id_, "--window", "all", "--json"))["window"]["components"]
    assert (numbers["source"]["acked"], numbers["source"]["set_aside"]) == (FAILURES, FAILURES)


def a_home_that_is_gone_for_a_while(command: Command, url: str, *ids: str) -> None:
    away = command.folder / "away"
    command.home.rename(away)
    command.home.symlink_to(command.folder / "nowhere")  # so that nobody can make it anew
    try:
        assert "no topology is registered: the home " in command("list")
        assert "no topology is registered: the home " in command("list", "--json")
        assert f"no topology {ids[0]!r} was found: the home " in command("stats", ids[0], code=2)
        page = until(lambda: (text := shown(url, "/")) and "its content is gone" in text and text)
        assert all(id_ in page for id_ in ids)
        assert "dead" not in re.findall(r"pill state-(\w+)", page)

        def micro_batches() -> int:
            document = json.loads(request(url, "GET", f"/api/v2/topologies/{ids[0]}")[2])
            assert (document["live"], document["entry"]["state"]) == (True, "active")
            return document["entry"]["gist"]["micro_batches"]

        before = micro_batches()
        until(lambda: micro_batches() > before)
    finally:
        command.home.unlink()
        away.rename(command.home)
    until(lambda: {entry["id"] for entry in command.entries() if entry["state"] == "active"} == set(ids))
    before = command.entry(ids[0])["gist"]["micro_batches"]
    until(lambda: command.entry(ids[0])["gist"]["micro_batches"] > before)
    until(lambda: "its content is gone" not in shown(url, "/"))


def a_log_of_a_gigabyte(command: Command, url: str, id_: str) -> None:
    entry = command.entry(id_)
    log = Path(entry["log_directory"]) / "night.log"
    line = "2026-01-01T00:00:00.000Z  INFO     fail[0] micro-batch 3 | line {:07}\n"
    with log.open("r+b") as file:
        file.seek(LOG_BYTES)  # what is between takes no space on the disk
        file.write(b"\n")
        for number in range(0, 1_000_000, 10_000):
            file.write("".join(map(line.format, range(number, number + 10_000))).encode())
    assert log.stat().st_size > LOG_BYTES
    assert command("tail", id_, "--last", "2").splitlines()[-1].endswith("line 0999999")
    assert "line 0999990" in command("tail", id_, "fail", "--search", "LINE 099999", "--last", "10")
    command("tail", id_, "--search", "no such words")
    assert "line 0999999" in shown(url, f"/topologies/{id_}/log")
    shown(url, f"/topologies/{id_}/log?q=no+such+words&component=fail")
