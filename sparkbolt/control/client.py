"""Client: asks a running topology.

An answer arrives within ``secs``, or ``NoAnswerError`` gives the reason. It is JSON of at most ``ANSWER_BYTES_MAX``;
nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from typing import Any

from sparkbolt.errors import SparkboltError, WrongUseError

ANSWER_BYTES_MAX = 64 << 20
_TCP = re.compile(r"tcp://(?:\[(.+)\]|([^:\[\]]+)):(\d+)")


class NoAnswerError(SparkboltError):
    """A topology did not answer in time, or nothing listens at its address."""


class NotAllowedError(SparkboltError):
    """A topology refuses to be asked: the token is missing or wrong, or it is another user's."""


class WrongRequestError(SparkboltError):
    """A topology does not understand a request, or could not carry it out."""


def ask(
    address: str,
    verb: str,
    arguments: dict[str, Any] | None = None,
    *,
    by: str = "",
    token: str | None = None,
    secs: float = 1.0,
) -> Any:
    """Ask a topology, and return its answer.

    Args:
        address: ``unix:PATH`` or ``tcp://HOST:PORT``.
        verb: the verb, such as ``document``.
        arguments: of the verb.
        by: the user who asks.
        token: the secret, for TCP.
        secs: how long it may take in all.

    Raises:
        NoAnswerError: there is no answer within ``secs``.
        NotAllowedError: the topology refuses to be asked.
        WrongRequestError: the topology does not understand the request, or could not carry it out.
        WrongUseError: what the request names does not exist.
    """
    until = time.monotonic() + secs
    request = {"verb": verb, "by": by, "arguments": arguments or {}} | ({"token": token} if token else {})
    try:
        with _connected(address, secs) as connection:
            connection.settimeout(max(0.01, until - time.monotonic()))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the answer may say why
                connection.sendall(json.dumps(request).encode() + b"\n")
            body = json.loads(_line(connection, until))
    except TimeoutError:
        raise NoAnswerError(f"the topology at {address} has not answered within {secs:g} s") from None
    except (OSError, ValueError) as error:
        raise NoAnswerError(f"the topology at {address} cannot be reached: {error}") from None
    if not isinstance(body, dict) or not ("answer" in body or "error" in body):
        raise NoAnswerError(
            f"the topology at {address} sent an invalid answer: check that the address belongs to a topology"
        )
    if "error" in body:
        kinds = {"refused": NotAllowedError, "busy": NoAnswerError, "absent": WrongUseError}
        raise kinds.get(str(body.get("kind")), WrongRequestError)(str(body["error"]))
    return body["answer"]


def _connected(address: str, secs: float) -> socket.socket:
    if address.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(secs)
            connection.connect(address.removeprefix("unix:"))
        except BaseException:
            connection.close()
            raise
        return connection
    match = _TCP.fullmatch(address)
    if match is None:
        raise ValueError(f"{address!r} is not an address, expected unix:PATH or tcp://HOST:PORT")
    return socket.create_connection((match[1] or match[2], int(match[3])), secs)


def _line(connection: socket.socket, until: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    while not parts or not parts[-1].endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        data = connection.recv(1 << 20)
        if not data:
            raise ValueError("it has closed the connection without an answer")
        parts.append(data)
        size += len(data)
        if size > ANSWER_BYTES_MAX:
            raise ValueError(f"its answer has more than {ANSWER_BYTES_MAX:,} bytes")
    return b"".join(parts)
