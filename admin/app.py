"""The application: pages, guards, errors, headers."""

from __future__ import annotations

from dataclasses import replace

from litestar import Litestar, Router
from litestar.config.compression import CompressionConfig
from litestar.datastructures import State, UploadFile
from litestar.di import Provide
from litestar.static_files import create_static_files_router

from admin.access import Person, for_everybody
from admin.guards import admit
from admin.live.board import LiveBoard
from admin.live.session_watch import SessionWatch
from admin.pages import BOARDS, HANDLERS
from admin.parts import ConsoleParts
from admin.web import errors
from admin.web.forms import SentFile, SentForm, form_fields
from admin.web.headers import SecurityHeaders
from admin.web.static_files import FOLDER
from admin.web.view import AnyRequest, View

MOST_BODY = 8 << 20
"""Bytes of a request: an uploaded list of ids fits."""


def create_app(parts: ConsoleParts) -> Litestar:
    """Returns the ASGI application. Its end stops the boards."""
    app = Litestar(
        route_handlers=[*HANDLERS, _static_files()],
        guards=[admit],
        dependencies={
            "parts": Provide(_parts, sync_to_thread=False),
            "person": Provide(_person, sync_to_thread=False),
            "view": Provide(_view, sync_to_thread=False),
            "form": Provide(_form),
        },
        exception_handlers=errors.HANDLERS,
        compression_config=CompressionConfig("gzip", gzip_compress_level=5, exclude=["^/live/"]),
        request_max_body_size=MOST_BODY,
        on_shutdown=[_stop_boards],
        openapi_config=None,
        logging_config=None,
        state=State({"boards": {spec.name: spec for spec in BOARDS}}),
    )
    app.state.router = app.asgi_handler
    app.state.paths = frozenset(route.path for route in app.routes)
    app.state.loadable = frozenset(one.path_format for one in app.routes if "GET" in one.methods)
    furnish(app, parts)
    return app


def furnish(app: Litestar, parts: ConsoleParts) -> None:
    """Gives a stopped application its parts. Its routes, which take long to make, know none of them."""
    boards = {
        spec.name: LiveBoard(spec.name, spec.reader(parts), spec.every_s, wall_ms=parts.wall_ms)
        for spec in BOARDS
    }
    app.state.parts = replace(parts, boards=boards)
    app.state.watch = SessionWatch(parts.people.sessions.alive)
    # Around the router: an answer for a path without a route passes no middleware of Litestar's.
    app.asgi_handler = SecurityHeaders(app.state.router, secure=parts.secure)


def _stop_boards(app: Litestar) -> None:
    for board in app.state.parts.boards.values():
        board.stop()


def _static_files() -> Router:
    return create_static_files_router(path="/static", directories=[FOLDER], opt=for_everybody())


def _parts(request: AnyRequest) -> ConsoleParts:
    parts: ConsoleParts = request.app.state.parts
    return parts


def _person(request: AnyRequest) -> Person:
    person: Person = request.scope["user"]
    return person


def _view(request: AnyRequest) -> View:
    return View(request, request.app.state.parts, request.scope["user"])


async def _form(request: AnyRequest) -> SentForm:
    sent = await form_fields(request)
    texts = {name: value for name, value in sent.items() if isinstance(value, str)}
    lists = {name: [one for one in sent.getall(name) if isinstance(one, str)] for name in sent}
    files = {
        name: SentFile(value.filename, await value.read())
        for name, value in sent.items()
        if isinstance(value, UploadFile)
    }
    return SentForm(texts, lists, files)
