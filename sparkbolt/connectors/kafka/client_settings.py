"""ClientSettings: the properties of Kafka's clients, and which of them must never be printed.

A secret is only in the pickled spout and in the client's configuration: texts show ``***`` in its place.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeAlias

from sparkbolt.api.arguments import text, verify
from sparkbolt.errors import ConfigError

OnError: TypeAlias = Callable[[Any], None]
"""Called with an error of the client library."""

MASK = "***"
SECRET_CHARACTERS = 4
"""A shorter secret is masked only where it is a word of its own, so that texts stay readable."""
_QUIET = logging.getLogger("sparkbolt.kafka.client")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False  # errors that concern a user are logged once, elsewhere
_SECRET = re.compile(r"password|secret|token|jaas|credential|\.pem$|\.key$|oauthbearer\.config|user\.info", re.I)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_OURS: Mapping[str, str] = {
    "bootstrap.servers": "it is the first argument",
    "group.id": "it is `group`",
    "enable.auto.commit": "offsets are committed when their trees are finished",
    "enable.auto.offset.store": "offsets are committed when their trees are finished",
    "auto.offset.reset": "where to begin is `start`, and what to do about offsets that are gone is `out_of_range`",
    "enable.partition.eof": "the spout needs to know where a log ends",
    "isolation.level": "it is `isolation`",
    "enable.idempotence": "the bolt's producer is always idempotent",
    "transactional.id": "it is made of the checkpoint and the component",
    "delivery.report.only.error": "a tuple is acked when its message is",
}
_OF_CONSUMERS = re.compile(
    r"^(fetch\.|queued\.|max\.(poll|partition)|session\.|heartbeat\.|group\.|check\.crcs|topic\.)"
)


def client_library(module: str = "confluent_kafka") -> ModuleType:
    """Return the client library, or a module of it.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"Kafka needs the package confluent-kafka, which is not installed whole ({error}): "
            "pip install 'sparkbolt[kafka]'"
        ) from error


def is_secret(key: str) -> bool:
    """Whether the value of a property must not be printed; a user's name is no secret.

    >>> is_secret("sasl.password"), is_secret("ssl.key.pem"), is_secret("sasl.username")
    (True, True, False)
    """
    return _SECRET.search(key) is not None


def scrubbed(text: object, options: Mapping[str, Any]) -> str:
    """Return a text without the secrets of some properties, and without the user info of addresses.

    >>> scrubbed("ann:x4! is refused by http://ann:x4!@registry", {"basic.auth.user.info": "ann:x4!"})
    '*** is refused by http://***@registry'
    """
    clean = _IN_ADDRESS.sub(MASK, str(text))
    for key, value in options.items():
        if is_secret(key) and isinstance(value, str) and value:
            word = re.escape(value)
            clean = re.sub(word if len(value) >= SECRET_CHARACTERS else rf"(?<!\w){word}(?!\w)", MASK, clean)
    return clean


@dataclass(frozen=True, repr=False)
class ClientSettings:
    """The brokers and the user's client properties, such as those for SASL and TLS.

    >>> ClientSettings("localhost:9092", {"sasl.mechanism": "PLAIN", "sasl.password": "x4!"})
    ClientSettings('localhost:9092', sasl.mechanism=PLAIN, sasl.password=***)
    """

    brokers: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the properties.

        Raises:
            ConfigError: There is no broker, or ``options`` has a property that the spout or bolt itself sets.
        """
        verify("brokers", self.brokers, text("'host:port', several with commas between"))
        for key in self.options:
            if key in _OURS:
                raise ConfigError(f"client property {key!r} cannot be given: {_OURS[key]}")

    def __repr__(self) -> str:
        """Return all properties, with secrets masked."""
        shown = (f"{key}={MASK if is_secret(key) else value}" for key, value in self.options.items())
        return self.scrub(f"ClientSettings({', '.join([repr(self.brokers), *shown])})")

    def _common(self) -> dict[str, Any]:
        # We get errors through callbacks and results. After an outage the client reconnects within 1 s instead of 10 s.
        ours = {"log_level": 0, "client.id": "sparkbolt", "reconnect.backoff.max.ms": 1000}
        return {**ours, **self.options, "bootstrap.servers": self.brokers}

    @property
    def where(self) -> str:
        """The brokers, as texts name them."""
        return self.scrub(self.brokers)

    def text_of(self, error: Any) -> str:
        """Return the text of a client error, given the exception or the error code within one, without secrets."""
        inner = error.args[0] if getattr(error, "args", ()) else error
        return self.scrub(inner.str() if hasattr(inner, "str") else inner)

    def consumer(self, group: str, **more: Any) -> dict[str, Any]:
        """Return the properties of a consumer with manual assignment and without automatic commits."""
        ours = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
        return {**more, **self._common(), **ours}

    def admin(self) -> dict[str, Any]:
        """Return the properties of a client that asks for topics and offsets."""
        return {key: value for key, value in self._common().items() if not _OF_CONSUMERS.match(key)}

    def producer(self, **more: Any) -> dict[str, Any]:
        """Return the properties of an idempotent producer."""
        return {**more, **self._common(), "enable.idempotence": True}

    def scrub(self, text: object) -> str:
        """Return a text with its secrets masked."""
        return scrubbed(text, self.options)

    def new(self, kind: str, properties: Mapping[str, Any], on_error: OnError | None = None) -> Any:
        """Create a client, a ``Consumer``, ``Producer`` or ``AdminClient``; its errors go to ``on_error`` alone.

        Raises:
            ConfigError: The library refuses a property; its message is shown without secrets.
        """
        make = getattr(client_library("confluent_kafka.admin" if kind == "AdminClient" else "confluent_kafka"), kind)
        try:
            return make({**properties, "error_cb": on_error or (lambda _: None), "logger": _QUIET})
        except Exception as error:  # noqa: BLE001  the library raises its own, ValueError or TypeError
            raise ConfigError(f"Kafka's client refuses its properties: {self.text_of(error)}") from None
