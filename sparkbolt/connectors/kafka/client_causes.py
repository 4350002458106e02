"""Causes: why brokers give no answer, in one sentence that says what to do.

A request that no broker answers ends with "transport failure" or "timed out". The client library reports the cause
apart, to the error callback of the client, which runs only while the client is polled.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, NamedTuple

from sparkbolt.connectors.kafka.client_settings import ClientSettings, client_library

_PLACE = re.compile(r"^(?:[a-z_]+://)?(?P<place>\S+?)/(?P<broker>bootstrap|-?\d+): ")
_STATE = re.compile(r" \(after \d+ms in state \w+\)$")
_SUPPORTED = re.compile(r"broker's supported mechanisms: ?(?P<names>.*)$")


class Diagnosis(NamedTuple):
    """Why brokers give no answer."""

    text: str
    """A sentence that says what to do."""
    is_refusal: bool
    """Whether waiting does not help: the brokers refuse the login, or the client refuses their certificate."""


class Causes:
    """The errors that clients have reported since ``forget``."""

    def __init__(self, settings: ClientSettings) -> None:
        """Begin without any; ``settings`` are those of the clients."""
        self._settings = settings
        self._heard: dict[int, str] = {}
        """By code of the client library: the last text."""
        self._count = 0

    def hear(self, error: Any) -> None:
        """The error callback of the clients."""
        self._count += 1
        self._heard[error.code()] = self._settings.text_of(error)

    def listen(self, *clients: Any) -> None:
        """Let clients report the errors that they have gathered."""
        for client in clients:
            before = -1
            while before != self._count:
                before = self._count
                with contextlib.suppress(client_library().KafkaException, SystemError):  # a fatal error
                    client.poll(0)

    def forget(self) -> None:
        """Forget all errors, because the brokers have answered, or a new request begins."""
        self._heard.clear()

    def cause(self, error: Any = None) -> Diagnosis | None:
        """Return the most telling of the errors.

        Args:
            error: The error that ended the request.

        Returns:
            None if there is no error, or if ``error`` is the answer of a broker, which is its own cause.
        """
        inner = error.args[0] if getattr(error, "args", ()) else error
        if hasattr(inner, "code") and inner.code() >= 0:
            return None
        codes, where = client_library().KafkaError, self._settings.where
        heard = {code: _STATE.sub("", text) for code, text in self._heard.items()}
        login, tls = heard.get(codes._AUTHENTICATION, ""), heard.get(codes._SSL, "")
        if login and "Local: Broker transport failure" not in login:
            return self._of_login(login)
        if "certificate verify failed" in tls:
            return Diagnosis(
                f"the certificate of the Kafka brokers at {where} is not valid for this client: set ssl.ca.location to "
                "the file of the authority that has signed it, and name the brokers as the certificate does",
                True,
            )
        if "in state SSL_HANDSHAKE" in self._heard.get(codes._TRANSPORT, "") or "PLAINTEXT broker listener" in tls:
            return Diagnosis(
                f"the Kafka brokers at {where} do not answer in TLS: does this port expect it? If not, set "
                "security.protocol to PLAINTEXT or SASL_PLAINTEXT, or give the port for TLS",
                False,
            )
        if tls:
            return Diagnosis(f"no TLS with the Kafka brokers at {where}: {_bare(tls)}: check the ssl properties", False)
        if codes._RESOLVE in heard:
            return Diagnosis(_of_name(heard[codes._RESOLVE]), False)
        away = f"no answer from the Kafka brokers at {where}: "
        if codes._TRANSPORT in heard:
            text = _bare(heard[codes._TRANSPORT])
            mend = ": do they run, and is the port right?" if "Connection refused" in text else ""
            return Diagnosis(f"{away}{text}{mend}", False)
        if codes._ALL_BROKERS_DOWN in heard:
            protocol = str(self._settings.options.get("security.protocol", "PLAINTEXT")).upper()
            return Diagnosis(
                f"{away}they close the connection: does the port expect another security.protocol than {protocol}, "
                "such as SSL or SASL_SSL?",
                False,
            )
        return next((Diagnosis(f"{away}{_bare(text)}", False) for text in heard.values()), None)

    def _of_login(self, text: str) -> Diagnosis:
        where, options = self._settings.where, self._settings.options
        mechanism = options.get("sasl.mechanism", options.get("sasl.mechanisms", "GSSAPI"))
        supported = _SUPPORTED.search(text)
        if "Unsupported SASL mechanism" in text and supported is not None:
            return Diagnosis(
                f"the Kafka brokers at {where} do not support sasl.mechanism={mechanism}: set it to one of "
                f"{supported['names'].replace(',', ', ')}",
                True,
            )
        if "not valid in current SASL state" in text:
            return Diagnosis(
                f"the Kafka brokers at {where} take no login at this port: set security.protocol to PLAINTEXT or SSL, "
                "or give the port for SASL",
                True,
            )
        said = _bare(text).removeprefix("SASL authentication error: ")
        # An error that does not come from a broker may pass, such as a server of tokens that is away.
        refused = "SASL authentication error: " in text and "Local: " not in text
        head = (
            f"the Kafka brokers at {where} refuse the login" if refused else f"no login to the Kafka brokers at {where}"
        )
        names = "sasl.username and sasl.password" if "sasl.username" in options else "the sasl properties"
        return Diagnosis(f"{head} with {mechanism} ({said}): check {names}", refused)


def _of_name(text: str) -> str:
    found = _PLACE.match(text)
    host = found["place"].rpartition(":")[0] if found is not None else ""
    if not host or found is None:
        return _bare(text)
    if found["broker"] == "bootstrap":
        return f"no host has the name {host!r}, which is given for the Kafka brokers: is it right?"
    return (
        f"the Kafka brokers announce the name {host!r}, which this machine does not know: set their "
        "advertised.listeners to names that it knows"
    )


def _bare(text: str) -> str:
    """Return a client's text without the place that it begins with, which texts name themselves."""
    return _PLACE.sub("", text)
