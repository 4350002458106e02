"""Causes: why brokers give no answer, in one sentence that says what to do.

A request that no broker answers ends with "transport failure" or "timed out". The client library reports the cause
apart, to the error callback of the client, which runs only while the client is polled.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, NamedTuple

from sparkbolt.connectors.kafka.client_settings import ClientSettings, client_library

_REPORT = re.compile(
    r"(?:(?:[a-z_]+://)?(?P<host>\S+):\d+/(?P<broker>bootstrap|-?\d+): )?"
    r"(?P<text>.*?)(?: \(after \d+ms in state (?P<state>\w+)\))?",
    re.DOTALL,
)
"""A text of the client library; ``broker`` is a number if brokers have announced the host."""
_SUPPORTED = re.compile(r"broker's supported mechanisms: ?(?P<names>.*)$")


class Diagnosis(NamedTuple):
    """Why brokers give no answer."""

    text: str
    """A sentence that says what to do."""
    is_refusal: bool
    """Whether waiting does not help: the brokers refuse the login, or the client refuses their certificate."""


class _Report(NamedTuple):
    """An error that a client has reported."""

    text: str
    """Without secrets, and without the place and the state."""
    host: str | None
    is_announced: bool
    """Whether brokers have announced the host."""
    state: str | None
    """The state of the connection, such as ``SSL_HANDSHAKE``."""


class Causes:
    """The errors that clients have reported since ``forget``."""

    def __init__(self, settings: ClientSettings) -> None:
        """Begin without any; ``settings`` are those of the clients."""
        self._settings = settings
        self._heard: dict[int, _Report] = {}
        """By code of the client library: the last error."""
        self._count = 0

    def hear(self, error: Any) -> None:
        """The error callback of the clients."""
        self._count += 1
        found = _REPORT.fullmatch(str(error.str()))
        assert found is not None, "any text matches"
        text, is_announced = self._settings.scrub(found["text"]), found["broker"] not in (None, "bootstrap")
        self._heard[error.code()] = _Report(text, found["host"], is_announced, found["state"])

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
        codes, where, heard = client_library().KafkaError, self._settings.where, self._heard
        login, tls, link = heard.get(codes._AUTHENTICATION), heard.get(codes._SSL), heard.get(codes._TRANSPORT)
        if login is not None and "Local: Broker transport failure" not in login.text:
            return self._of_login(login.text)
        if tls is not None and "certificate verify failed" in tls.text:
            return Diagnosis(
                f"the certificate of the Kafka brokers at {where} is not valid for this client: set ssl.ca.location to "
                "the file of the authority that has signed it, and name the brokers as the certificate does",
                True,
            )
        if any(one is not None and _is_no_tls(one) for one in (tls, link)):
            return Diagnosis(
                f"the Kafka brokers at {where} do not answer in TLS: does this port expect it? If not, set "
                "security.protocol to PLAINTEXT or SASL_PLAINTEXT, or give the port for TLS",
                False,
            )
        if tls is not None:
            return Diagnosis(f"no TLS with the Kafka brokers at {where}: {tls.text}: check the ssl properties", False)
        if codes._RESOLVE in heard:
            return Diagnosis(_of_name(heard[codes._RESOLVE]), False)
        away = f"no answer from the Kafka brokers at {where}: "
        if link is not None:
            mend = ": do they run, and is the port right?" if "Connection refused" in link.text else ""
            return Diagnosis(f"{away}{link.text}{mend}", False)
        if codes._ALL_BROKERS_DOWN in heard:
            protocol = str(self._settings.options.get("security.protocol", "PLAINTEXT")).upper()
            return Diagnosis(
                f"{away}they close the connection: does the port expect another security.protocol than {protocol}, "
                "such as SSL or SASL_SSL?",
                False,
            )
        return next((Diagnosis(f"{away}{one.text}", False) for one in heard.values()), None)

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
        said = text.removeprefix("SASL authentication error: ")
        # An error that does not come from a broker may pass, such as a server of tokens that is away.
        refused = "SASL authentication error: " in text and "Local: " not in text
        head = (
            f"the Kafka brokers at {where} refuse the login" if refused else f"no login to the Kafka brokers at {where}"
        )
        names = "sasl.username and sasl.password" if "sasl.username" in options else "the sasl properties"
        return Diagnosis(f"{head} with {mechanism} ({said}): check {names}", refused)


def _is_no_tls(report: _Report) -> bool:
    """Whether a handshake ended without an answer in TLS; texts of the TLS library name a routine."""
    if "PLAINTEXT broker listener" in report.text:
        return True
    return report.state == "SSL_HANDSHAKE" and "routines:" not in report.text


def _of_name(report: _Report) -> str:
    if report.is_announced:
        return (
            f"the Kafka brokers announce the name {report.host!r}, which this machine does not know: set their "
            "advertised.listeners to names that it knows"
        )
    host = report.text if report.host is None else repr(report.host)
    return f"no host has the name {host}, which is given for the Kafka brokers: is it right?"
