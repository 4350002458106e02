"""Errors: how each interface tells that a request was refused or failed.

Which question it answers: what does a program read when something went wrong?
Rule: texts of exceptions are values of JSON or plain text, never HTML.

Read before: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse, Response


def storm_error(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as Storm's interface tells it: ``error`` is the status with its name, ``errorMessage`` a sentence."""
    name = "Server Error" if status == 500 else HTTPStatus(status).phrase  # as Storm's server calls it
    return JSONResponse({"error": f"{status} {name}", "errorMessage": sentence}, status, headers)


def problem(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as our own interface tells it: the problem details of RFC 9457."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": sentence}
    return JSONResponse(body, status, headers, media_type="application/problem+json")
