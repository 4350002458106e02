"""Action pages: the verbs of ``VERBS``, each confirmed on a page that describes it.

Only a confirmed form makes a change, never a link; ``Guard`` has checked token and CSRF before. After a mistake the
form shows your input again, beside the error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sparkbolt.base.codec import MismatchError
from sparkbolt.control.documents import Answer, TopologyDocument, refused
from sparkbolt.control.letters.edits import RAW_VALUE
from sparkbolt.control.verbs import VERBS, Verb
from sparkbolt.faces.ui.message_pages import LETTER_FILTERS, RAW, letter_of, letter_shown, raw_text
from sparkbolt.faces.ui.pages import Tab, asking_of, no_such, topology_of, topology_page
from sparkbolt.faces.ui.record_texts import value_text, value_typed
from sparkbolt.faces.ui.shown import words
from sparkbolt.faces.ui.urls import path_of

LETTER_PREFIX = "letter-"
FIELD_PREFIX = "field-"
UNSHOWN = (LETTER_PREFIX, FIELD_PREFIX, RAW)
"""How fields of forms begin whose values a confirmation does not repeat."""
LETTERS_MAX = 500
"""How many dead letters one form may name."""


class MistakeError(Exception):
    """The input is invalid: by field, the expected value."""

    def __init__(self, wrong: Mapping[str, str]) -> None:
        """Report the errors, by field."""
        super().__init__("; ".join(wrong.values()))
        self.wrong = dict(wrong)


def letters_in(form: Mapping[str, str]) -> list[str]:
    """The ids of the letters that a form names, by fields ``letter-ID``.

    >>> letters_in({"letter-5f": "on", "csrf": "x"})
    ['5f']
    """
    ids = [name.removeprefix(LETTER_PREFIX) for name in form if name.startswith(LETTER_PREFIX)]
    return ids[:LETTERS_MAX]


def values_in(form: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, Any]:
    """The values that were typed for the fields of a record whose values are ``before``.

    Raises:
        MistakeError: a value that replaces no text is not JSON.
    """
    values, wrong = {}, {}
    for number, (name, value) in enumerate(before.items()):
        key = f"{FIELD_PREFIX}{number}"
        if key not in form:
            continue
        try:
            values[name] = value_typed(form[key], value)
        except ValueError as error:
            wrong[key] = (
                f'{name} is not JSON ({error}): write a text "in quotes", a number without quotes, and no value as null'
            )
    if wrong:
        raise MistakeError(wrong)
    return values


async def ask_page(request: Request) -> Response:
    """``GET /topologies/ID/do/VERB``: the page on which a change is confirmed."""
    verb = _verb(request)
    if verb.of_letters:
        raise no_such(f"choose dead letters on the page {verb.tab}")
    document = await asking_of(request).document(topology_of(request))
    return _confirm(request, document, verb, {})


async def act_page(request: Request) -> Response:
    """``POST /topologies/ID/do/VERB``: asks for confirmation, or performs the confirmed change."""
    verb = _verb(request)
    id_, form = topology_of(request), dict(request.state.form)
    document = await asking_of(request).document(id_)
    if verb.of_letters and not letters_in(form) and not any(form.get(name) for name in ("search", *LETTER_FILTERS)):
        none = refused("No letter is selected. Select one or more letters first.")
        return _answered(request, document, verb, none, 422)
    is_confirmed = form.get("confirmed") == "yes"
    try:
        arguments = arguments_in(form, verb, is_whole=is_confirmed)
        if verb.of_letters:
            arguments |= await _letters(request, id_, form, verb)
    except MistakeError as mistake:
        if letters_in(form):
            letter = await letter_of(request, id_, letters_in(form)[0])
            answer = letter_shown(request, document, letter, form, mistake.wrong)
            answer.status_code = 422
            return answer
        return _answered(request, document, verb, refused(str(mistake)), 422)
    if not is_confirmed:
        return _confirm(request, document, verb, form, arguments.get("values"))
    answer_told = await asking_of(request).change(id_, verb.name, by=request.state.by, **arguments)
    return _answered(request, document, verb, answer_told, 409 if answer_told["refused"] else 200)


def _verb(request: Request) -> Verb:
    name = request.path_params["verb"]
    verbs = {verb.name: verb for verb in VERBS.values() if verb.has_route}
    if name not in verbs:
        raise no_such(f"there is no action {name!r}; the actions are {', '.join(verbs)}")
    return verbs[name]


def arguments_in(form: Mapping[str, str], verb: Verb, *, is_whole: bool) -> dict[str, Any]:
    """The arguments in a form; if it is not ``is_whole``, a later form asks for the missing ones.

    Raises:
        MistakeError: something that was typed cannot be used.

    >>> arguments_in({"executors": "4", "executors-of": "split"}, VERBS["rebalance"], is_whole=False)["executors"]
    {'split': 4}
    """
    found, wrong = {}, {}
    for one in verb.parameters:
        text = form.get(one.name, "").strip()
        if not text:
            is_asked = one.is_typed and (is_whole or one.name in form)
            if one.is_required and is_asked:
                wrong[one.name] = f"Enter {one.about}."
            elif not one.is_required:
                found[one.name] = one.default
            continue
        whose = form.get(f"{one.name}-of")
        try:
            found[one.name] = one.of_text(f"{whose}={text}" if whose else text)
        except MismatchError as mismatch:
            wrong[one.name] = f"{words(one.name)} {mismatch.text}."
    if wrong:
        raise MistakeError(wrong)
    return found


async def _letters(request: Request, id_: str, form: Mapping[str, str], verb: Verb) -> dict[str, Any]:
    """The letters that a form names, and for a single one the changes in its record."""
    ids = letters_in(form)
    found: dict[str, Any] = {"ids": ids or None}
    can_edit = any(one.name == "values" for one in verb.parameters)
    if can_edit and len(ids) == 1 and any(each.startswith((FIELD_PREFIX, RAW)) for each in form):
        found["values"] = changed_values(await letter_of(request, id_, ids[0]), form) or None
    return found


def changed_values(letter: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    """The changes in the record of a letter, or in its original message.

    Raises:
        MistakeError: a value is not JSON.
    """
    tuples = letter["tuples"]
    before = dict(zip(letter["fields"], tuples[0], strict=False)) if len(tuples) == 1 else {}
    changed = {field: value for field, value in values_in(form, before).items() if value != before[field]}
    if RAW in form and letter["raw"] is not None:
        text = form[RAW].replace("\r\n", "\n")  # as browsers send the ends of lines
        if text != raw_text(letter["raw"].get("value")):
            changed[RAW_VALUE] = text
    return changed


def _confirm(
    request: Request,
    document: TopologyDocument,
    verb: Verb,
    form: Mapping[str, str],
    edits: Mapping[str, Any] | None = None,
) -> Response:
    """The page that asks for confirmation; it shows what was chosen, and the edits of a record by field."""
    hidden = {key: value for key, value in form.items() if key not in ("csrf", "confirmed")}
    return _page(
        request,
        "confirm.html",
        document,
        verb,
        hidden=hidden,
        fields=[one for one in verb.parameters if one.is_typed and one.name not in form],
        letters=letters_in(form),
        shown_form=[
            *((words(key), value) for key, value in hidden.items() if value and not key.startswith(UNSHOWN)),
            *(
                ("original message" if name == RAW_VALUE else f"new {name}", value_text(value))
                for name, value in (edits or {}).items()
            ),
        ],
    )


def _answered(request: Request, document: TopologyDocument, verb: Verb, answer: Answer, status: int) -> Response:
    return _page(request, "answer.html", document, verb, answer=answer, status=status)


def _page(request: Request, template: str, document: TopologyDocument, verb: Verb, **values: Any) -> Response:
    back = path_of(document["entry"]["id"], verb.tab)
    return topology_page(request, template, document, Tab.of(verb.tab), verb=verb, back=back, **values)
