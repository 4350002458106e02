"""ZooKeeperOffsets: stores offsets in ZooKeeper, in the layout of Storm's first Kafka spout (``ZkState`` of 0.9.3).

Existing readers of those nodes still work: ``topology`` (id and name), ``offset``, ``partition``, ``broker`` (host and
port), ``topic``. There are two additional keys: ``finished`` holds intervals beyond the offset, ``topic_id`` the id of
the topic if it is known. The topic is not in the path, so one id is for one topic.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from sparkbolt.api.arguments import checked, text
from sparkbolt.connectors.argument_pickle import PicklesArguments
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.connectors.kafka.offset_stores import Owner, Scope, Stored
from sparkbolt.errors import ConfigError, SparkboltError

CONNECT_SECS = 15.0
ANSWER_SECS = 10.0


class ZooKeeperAwayError(SparkboltError):
    """ZooKeeper does not answer; the problem may pass."""


class ZooKeeperOffsets(PicklesArguments):
    """Stores the offsets of one topic under ``root/id/partition_N``; ``id`` defaults to the spout's group.

    >>> ZooKeeperOffsets("localhost:2181", root="/kafkastorm").root
    '/kafkastorm'
    """

    @checked
    def __init__(
        self,
        hosts: Annotated[str, text("'host:port', several with commas between")],
        *,
        root: Annotated[str, text("a path such as '/kafkastorm'")] = "/kafkastorm",
        id: Annotated[str, text("the id under which offsets are stored")] | None = None,  # noqa: A002  Storm's
    ) -> None:
        """Check and store the arguments.

        Raises:
            ConfigError: The root is not a path, or kazoo is not installed.
        """
        if not root.startswith("/") or root.rstrip("/") != root:
            raise ConfigError(f"root={root!r}: expected a path such as '/kafkastorm'")
        try:
            importlib.import_module("kazoo.client")
        except ImportError:
            raise ConfigError("ZooKeeperOffsets needs kazoo: pip install 'sparkbolt[zookeeper]'") from None
        self.hosts = hosts
        self.root = root
        self.id = id

    def open(self, scope: Scope) -> None:
        """Connect to ZooKeeper.

        Raises:
            ConfigError: The spout reads several topics.
        """
        if scope.topics is None or len(scope.topics) != 1:
            raise ConfigError(
                "ZooKeeperOffsets: the layout of Storm's spout has no topic in its paths; expected one topic by name "
                "in each spout"
            )
        self.close()  # the client of an earlier attempt
        self._scope = scope
        self._path = f"{self.root}/{self.id or scope.group}"
        self._client = importlib.import_module("kazoo.client").KazooClient(hosts=self.hosts, timeout=CONNECT_SECS)
        self._client.start(timeout=CONNECT_SECS)

    def load(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, Stored]:
        """Return the contents of the nodes; an unreadable node raises, since its meaning is unknown."""
        errors = importlib.import_module("kazoo.exceptions")
        found: dict[KafkaPartition, Stored] = {}
        for place in places:
            try:
                data, _ = self._answer("get_async", f"{self._path}/partition_{place.number}")
                found[place] = record_of(json.loads(data))
            except errors.NoNodeError:
                continue
            except (ValueError, TypeError, KeyError) as error:
                raise ConfigError(
                    f"{self._path}/partition_{place.number} in ZooKeeper holds no offset of a Kafka spout ({error}): "
                    "use another id or root"
                ) from None
        return found

    def save(self, offsets: Mapping[KafkaPartition, Stored]) -> None:
        """Write the nodes; all nodes of one call are written together."""
        transaction = self._client.transaction()
        for place, stored in offsets.items():
            path = f"{self._path}/partition_{place.number}"
            self._answer("ensure_path_async", path)
            transaction.set_data(path, node_of(place, stored, self._scope.cluster.leaders.get(place, ("", 0))))
        for result in self._answer("commit_async", of=transaction):
            if isinstance(result, Exception):
                raise result

    def _answer(self, question: str, *arguments: Any, of: Any = None) -> Any:
        """Return the servers' answer with a time limit; kazoo itself waits without a limit if no server answers.

        Raises:
            ZooKeeperAwayError: No server answers in time.
        """
        client = self._client
        try:
            if client.connected:
                return getattr(client if of is None else of, question)(*arguments).get(timeout=ANSWER_SECS)
        except client.handler.timeout_exception:
            pass
        raise ZooKeeperAwayError(f"no answer from ZooKeeper at {self.hosts}, where finished offsets are kept")

    def close(self) -> None:
        """Close the client."""
        client, self._client = getattr(self, "_client", None), None
        if client is not None:
            client.stop()
            client.close()


def record_of(body: Mapping[str, Any]) -> Stored:
    """Parse the JSON of a node.

    Raises:
        KeyError: It is not a record of a Kafka spout.
    """
    owner = Owner(str(body["topology"]["id"]), str(body["topology"]["name"]))
    finished = [(int(start), int(end)) for start, end in body.get("finished", ())]
    return Stored(int(body["offset"]), owner, finished, str(body["topic"]), body.get("topic_id"))


def node_of(place: KafkaPartition, stored: Stored, leader: tuple[str, int]) -> bytes:
    """Return a node's JSON, with Storm's keys in Storm's order."""
    owner = stored.owner or Owner("", "")
    body = {
        "topology": {"id": owner.id, "name": owner.name},
        "offset": stored.offset,
        "partition": place.number,
        "broker": {"host": leader[0], "port": leader[1]},
        "topic": place.topic,
    }
    if stored.finished:
        body["finished"] = [list(span) for span in stored.finished]
    if stored.topic_id is not None:
        body["topic_id"] = stored.topic_id
    return json.dumps(body, separators=(",", ":")).encode()
