"""OperatorAction pages: what changes a topology, each confirmed on a page that says what it means.

Rule 1: a change is made by a form that was confirmed, never by a link; ``Guard`` has checked token and CSRF before.
Rule 2: what a person typed is never lost: with a mistake in it, it is shown again beside the mistake.
Rule 3: the answer is shown as the topology gave it: done, accepted, or refused and why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sparkbolt.control.documents import Answer, TopologyDocument
from sparkbolt.control.intent import SETTINGS
from sparkbolt.control.letters.edits import RAW_VALUE
from sparkbolt.faces.ui.message_pages import RAW, letter_of, letter_shown, raw_text
from sparkbolt.faces.ui.pages import Tab, asking_of, no_such, path_of, topology_of, topology_page

LETTER_PREFIX = "letter-"
FIELD_PREFIX = "field-"
LETTERS_MAX = 500
"""How many dead letters one form may name."""


@dataclass(frozen=True)
class OperatorAction:
    """An action that a user can request."""

    title: str
    means: str
    """What it does, in a sentence or two; read before it is confirmed."""
    button: str
    danger: bool = False
    back: str = ""
    """The last part of the page where it was asked for."""


ACTIONS = {
    "activate": OperatorAction("Activate", "The spouts emit again.", "Activate"),
    "deactivate": OperatorAction(
        "Deactivate",
        "The spouts stop emitting, and open trees finish. The topology stays inactive until you activate it, "
        "also after a restart.",
        "Deactivate",
    ),
    "kill": OperatorAction(
        "Kill",
        "The spouts stop, open trees get time to finish, and the topology ends. No message is lost: if you start it "
        "again with its checkpoint, it retries what was not finished.",
        "Kill topology",
        danger=True,
    ),
    "restart": OperatorAction(
        "Restart",
        "The query restarts from its checkpoint, in the same process. The running micro-batch runs again.",
        "Restart",
        danger=True,
    ),
    "rebalance": OperatorAction(
        "Rebalance",
        "The topology answers which changes of its layout a restart can apply, and refuses the others.",
        "Check",
        back=Tab.SETTINGS,
    ),
    "set": OperatorAction(
        "Change a setting", "The change applies at once and stays after restarts.", "Change setting", back=Tab.SETTINGS
    ),
    "trace": OperatorAction(
        "Trace a message",
        "From now on, Sparkbolt records each hop of the messages with this id. The list of traced trees shows them.",
        "Trace message",
        back=Tab.TREES,
    ),
    "replay": OperatorAction(
        "Replay",
        "The spout emits the message again, as a new tree. If it fails again, it becomes a dead letter again.",
        "Confirm replay",
        back=Tab.LETTERS,
    ),
    "discard": OperatorAction(
        "Discard",
        "The dead letter leaves the list of waiting letters. It stays in its file and in the list of all dead letters.",
        "Discard",
        danger=True,
        back=Tab.LETTERS,
    ),
}


class MistakeError(Exception):
    """What was typed cannot be used: by field, what is expected instead."""

    def __init__(self, wrong: Mapping[str, str]) -> None:
        """Say what is wrong, by field."""
        super().__init__("; ".join(wrong.values()))
        self.wrong = dict(wrong)


def letters_in(form: Mapping[str, str]) -> list[str]:
    """The ids of the letters that a form names, by fields ``letter-ID``.

    >>> letters_in({"letter-5f": "on", "csrf": "x"})
    ['5f']
    """
    ids = [name.removeprefix(LETTER_PREFIX) for name in form if name.startswith(LETTER_PREFIX)]
    return ids[:LETTERS_MAX]


def values_in(form: Mapping[str, str], fields: list[str]) -> dict[str, Any] | None:
    """The values that were typed for the fields of a record; None if the form has none.

    Raises:
        MistakeError: a value is not JSON.
    """
    typed = {
        name: form[f"{FIELD_PREFIX}{number}"] for number, name in enumerate(fields) if f"{FIELD_PREFIX}{number}" in form
    }
    values, wrong = {}, {}
    for number, name in enumerate(fields):
        if name not in typed:
            continue
        try:
            values[name] = json.loads(typed[name])
        except ValueError as error:
            wrong[f"{FIELD_PREFIX}{number}"] = (
                f'{name} is not JSON ({error}): write a text "in quotes", a number without quotes, and no value as null'
            )
    if wrong:
        raise MistakeError(wrong)
    return values or None


async def ask_page(request: Request) -> Response:
    """``GET /topologies/ID/do/ACTION``: the page on which an action is confirmed."""
    name, action = _action(request)
    if name not in ("activate", "deactivate", "kill", "restart"):
        raise no_such(f"start the action {action.title} from the page {action.back}")
    document = await asking_of(request).document(topology_of(request))
    return _confirm(request, document, name, {})


async def act_page(request: Request) -> Response:
    """``POST /topologies/ID/do/ACTION``: asks once more, or does what was confirmed."""
    name, action = _action(request)
    id_, form = topology_of(request), dict(request.state.form)
    document = await asking_of(request).document(id_)
    if name in ("replay", "discard") and not letters_in(form):
        return _answered(
            request, document, action, _refusal("No letter is selected. Select one or more letters first."), 422
        )
    try:
        arguments, options = await _arguments(request, id_, name, form)
    except MistakeError as mistake:
        if name == "replay":
            letter = await letter_of(request, id_, letters_in(form)[0])
            answer = letter_shown(request, document, letter, form, mistake.wrong)
            answer.status_code = 422
            return answer
        return _answered(request, document, action, _refusal(str(mistake)), 422)
    if form.get("confirmed") != "yes":
        return _confirm(request, document, name, form)
    answer_told = await asking_of(request).change(id_, name, *arguments, by=request.state.by, **options)
    return _answered(request, document, action, answer_told, 409 if answer_told["refused"] else 200)


def _refusal(text: str) -> Answer:
    return {"done": False, "refused": True, "text": text}


def _action(request: Request) -> tuple[str, OperatorAction]:
    name = request.path_params["action"]
    if name not in ACTIONS:
        raise no_such(f"there is no action {name!r}; the actions are {', '.join(ACTIONS)}")
    return name, ACTIONS[name]


async def _arguments(
    request: Request, id_: str, name: str, form: Mapping[str, str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the Operator's method gets, besides the topology and ``by``.

    Raises:
        MistakeError: something that was typed cannot be used.
    """
    if name == "kill":
        text = form.get("wait_secs", "").strip()
        return (), {"wait_secs": _number(text, "wait_secs", "the seconds to wait") if text else None}
    if name == "set":
        key, value = form.get("key", ""), form.get("value", "").strip()
        if key not in SETTINGS or not value:
            raise MistakeError({"value": f"Choose a setting and a value. The settings are {', '.join(SETTINGS)}."})
        return (key, value), {"component": form.get("component") or None}
    if name == "trace":
        message = form.get("message", "").strip()
        if not message:
            raise MistakeError({"message": "Enter the id of a message, or source@position such as orders/3@41."})
        return (message,), {"component": form.get("component") or None}
    if name == "rebalance":
        return (), rebalanced(form)
    if name in ("replay", "discard"):
        ids = letters_in(form)
        options: dict[str, Any] = {}
        if name == "discard":
            return (ids,), {}
        if target := form.get("target", "").strip():
            options["target"] = target
        if len(ids) == 1 and any(each.startswith((FIELD_PREFIX, RAW)) for each in form):
            changed = changed_values(await letter_of(request, id_, ids[0]), form)
            options |= {"values": changed} if changed else {}
        return (ids,), options
    return (), {}


def changed_values(letter: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    """What was changed in the record of a letter, or in its message as it came.

    Raises:
        MistakeError: a value is not JSON.
    """
    before = letter["tuples"][0] if len(letter["tuples"]) == 1 else []
    typed = values_in(form, letter["fields"]) or {}
    changed = {
        field: typed[field]
        for field, value in zip(letter["fields"], before, strict=False)
        if field in typed and typed[field] != value
    }
    if RAW in form and letter["raw"] is not None:
        text = form[RAW].replace("\r\n", "\n")  # as browsers send the ends of lines
        if text != raw_text(letter["raw"].get("value")):
            changed[RAW_VALUE] = text
    return changed


def rebalanced(form: Mapping[str, str]) -> dict[str, Any]:
    """What a form asks of ``rebalance``: ``workers``, and ``parallelism`` by component.

    Raises:
        MistakeError: a number is none.

    >>> rebalanced({"component": "split", "parallelism": "4", "workers": ""})
    {'parallelism': {'split': 4}}
    """
    wanted: dict[str, Any] = {}
    if text := form.get("workers", "").strip():
        wanted["workers"] = int(_number(text, "workers", "the number of workers"))
    if text := form.get("parallelism", "").strip():
        wanted["parallelism"] = {form.get("component", ""): int(_number(text, "parallelism", "the number of tasks"))}
    if not wanted:
        raise MistakeError({"parallelism": "Choose a component and its number of tasks."})
    return wanted


def _number(text: str, field: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise MistakeError({field: f"{what.capitalize()} must be a number, got {text[:40]!r}."})
    return number


def _confirm(request: Request, document: TopologyDocument, name: str, form: Mapping[str, str]) -> Response:
    action = ACTIONS[name]
    hidden = {key: value for key, value in form.items() if key not in ("csrf", "confirmed")}
    return topology_page(
        request,
        "confirm.html",
        document,
        Tab.of(action.back) if action.back else Tab.OVERVIEW,
        action=action,
        action_name=name,
        hidden=hidden,
        letters=letters_in(form),
        shown_form={key: value for key, value in hidden.items() if not key.startswith(LETTER_PREFIX) and value},
        back=path_of(document["entry"]["id"], action.back),
    )


def _answered(
    request: Request, document: TopologyDocument, action: OperatorAction, answer: Answer, status: int
) -> Response:
    return topology_page(
        request,
        "answer.html",
        document,
        Tab.of(action.back) if action.back else Tab.OVERVIEW,
        action=action,
        answer=answer,
        back=path_of(document["entry"]["id"], action.back),
        status=status,
    )
