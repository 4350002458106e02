"""The servers of the tests keep their rules: they come back as they were, and end with who started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pika
import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from tests.services import Kafka, PostgreSQL, RabbitMQ, ZooKeeper
from tests.services.__main__ import main

pytestmark = pytest.mark.service

SLEEPER = """
import signal, sys, threading
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
sys.path.insert(0, {root!r})
from tests.services.server import Server

class Sleeper(Server):
    address = "nowhere"
    def prepare(self): ...
    def command(self): return ["sleep", "600"], {{}}
    def answers(self): return True

with Sleeper({directory!r}) as server:
    print(server.process.pid, flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_server_ends_with_who_started_it(how: signal.Signals, tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    program = SLEEPER.format(root=root, directory=str(tmp_path / "sleeper"))
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert starter.stdout is not None
    server = psutil.Process(int(starter.stdout.readline()))
    starter.send_signal(how)
    starter.wait(10)
    starter.stdout.close()
    assert not psutil.wait_procs([server], timeout=10)[1]


def test_the_command_is_told_where_the_servers_are_and_its_exit_code_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    program = f"import os, sys; open({str(told)!r}, 'w').write(os.environ['SPARKBOLT_TEST_X']); sys.exit(7)"
    server = ZooKeeper(tmp_path / "zookeeper")
    monkeypatch.setattr("tests.services.__main__.make", lambda _: {"SPARKBOLT_TEST_X": server})
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # these handlers are for a process of its own
    assert main([sys.executable, "-c", program]) == 7
    assert told.read_text() == server.address
    assert server.process is None


def messages(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    for _ in range(100):
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            found.append(message.value())
        if len(found) >= count:
            break
    return found


@pytest.mark.campaign
def test_kafka_comes_back_with_its_messages_and_offsets_after_it_was_killed(tmp_path: Path) -> None:
    quiet = {"log_level": 0}
    with Kafka(tmp_path / "kafka") as kafka:
        settings = {"bootstrap.servers": kafka.address, **quiet}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("words", 1, 1)])["words"].result()
        producer = Producer(settings)
        for number in range(100):
            producer.produce("words", str(number))
        assert producer.flush(30) == 0
        group = {**settings, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**group, "max.poll.interval.ms": 60000})
        consumer.subscribe(["words"])
        assert len(messages(consumer, 100)) == 100
        consumer.commit(asynchronous=False)
        consumer.close()
        address = kafka.address
        kafka.kill()
        kafka.start()
        assert kafka.address == address
        producer = Producer(settings)
        producer.produce("words", "after")
        assert producer.flush(30) == 0
        consumer = Consumer(group)
        consumer.subscribe(["words"])
        assert messages(consumer, 1) == [b"after"]
        consumer.close()


def test_zookeeper_comes_back_with_its_nodes_after_it_was_killed(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        client = KazooClient(zookeeper.address, timeout=5)
        client.start()
        client.create("/a/b", b"kept", makepath=True)
        client.stop()
        zookeeper.kill()
        zookeeper.start()
        client.start()
        assert client.get("/a/b")[0] == b"kept"
        client.stop()
        client.close()


@pytest.mark.campaign
def test_rabbitmq_comes_back_with_its_durable_messages_after_it_was_killed(tmp_path: Path) -> None:
    with RabbitMQ(tmp_path / "rabbitmq") as rabbitmq:
        with pika.BlockingConnection(pika.URLParameters(rabbitmq.address)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("kept-jobs", durable=True)
            channel.basic_publish("", "kept-jobs", b"kept", pika.BasicProperties(delivery_mode=2))
        rabbitmq.wait_until_kept("kept-jobs")
        node, mapper = rabbitmq.process, rabbitmq.mapper.process
        rabbitmq.kill()
        assert node is not None
        assert node.poll() is not None
        assert mapper is not None
        assert mapper.poll() is not None
        rabbitmq.start()
        with pika.BlockingConnection(pika.URLParameters(rabbitmq.address)) as connection:
            method, _, body = connection.channel().basic_get("kept-jobs")
        assert (body, method.redelivered) == (b"kept", True)


def test_postgresql_comes_back_with_its_rows_after_it_was_killed_and_stopped(tmp_path: Path) -> None:
    with PostgreSQL(tmp_path / "postgresql") as postgresql:
        postgresql.ask("CREATE TABLE kept (n int)")
        postgresql.ask("INSERT INTO kept VALUES (%s)", 7)
        for end in (postgresql.kill, postgresql.stop):
            end()
            postgresql.start()
            assert postgresql.ask("SELECT n FROM kept") == [(7,)]
        home = postgresql.data.parent
        processes = [process for process in psutil.process_iter(["cmdline"]) if str(home) in str(process.info)]
        assert processes
    assert not psutil.wait_procs(processes, timeout=10)[1]


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path / "kafka", {"process.roles": "nothing"})
    with pytest.raises(RuntimeError, match=r"process\.roles"):
        kafka.start()
    assert os.listdir(tmp_path / "kafka")
