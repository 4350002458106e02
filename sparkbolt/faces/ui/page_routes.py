"""Page routes: the URLs of all pages, and of their styles, scripts and drawings."""

from __future__ import annotations

from typing import TypedDict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from sparkbolt.faces.ui import action_pages, message_pages, topology_pages
from sparkbolt.faces.ui.app import ErrorHandler
from sparkbolt.faces.ui.login import LoginForm
from sparkbolt.faces.ui.pages import error_page, rendered
from sparkbolt.faces.ui.security import local_path

ONE = "/topologies/{topology}"


class PageOptions(TypedDict):
    """Give it to ``make_app`` or ``serve`` to have pages."""

    routes: list[BaseRoute]
    page_error: ErrorHandler
    login_form: LoginForm


def page_options() -> PageOptions:
    """All pages, for ``make_app(operator, **page_options(), ...)`` and ``serve(**page_options(), ...)``."""
    return PageOptions(routes=page_routes(), page_error=error_page, login_form=login_form)


def login_form(request: Request, leads_to: str, wrong: str, status: int) -> Response:
    """``/login``: asks for the token; ``wrong`` is the error of the last input."""
    return rendered(request, "login.html", status=status, next=local_path(leads_to), wrong=wrong)


def page_routes() -> list[BaseRoute]:
    """The routes of all pages."""
    pages = {
        "/": topology_pages.topologies_page,
        ONE: topology_pages.one_topology_page,
        f"{ONE}/components/{{component:path}}": topology_pages.component_page,
        f"{ONE}/state/{{component:path}}": topology_pages.state_page,
        f"{ONE}/peek/{{component:path}}": topology_pages.peek_page,
        f"{ONE}/micro-batches": topology_pages.micro_batches_page,
        f"{ONE}/errors": topology_pages.errors_page,
        f"{ONE}/kafka": topology_pages.lag_page,
        f"{ONE}/settings": topology_pages.settings_page,
        f"{ONE}/log": topology_pages.log_page,
        f"{ONE}/trees": message_pages.trees_page,
        f"{ONE}/trees/{{root}}": message_pages.tree_page,
        f"{ONE}/dead-letters": message_pages.letters_page,
        f"{ONE}/dead-letters/{{letter}}": message_pages.letter_page,
        f"{ONE}/do/{{verb}}": action_pages.ask_page,
    }
    routes: list[BaseRoute] = [Route(path, page, methods=["GET"]) for path, page in pages.items()]
    routes.append(Route(f"{ONE}/do/{{verb}}", action_pages.act_page, methods=["POST"]))
    return [*routes, Mount("/static", StaticFiles(packages=[("sparkbolt.faces.ui", "static")]), name="static")]
