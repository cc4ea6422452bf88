"""Every address that is no page: 404, for people with a session."""

from __future__ import annotations

from litestar import HttpMethod, route
from litestar.params import FromPath

from admin.access import for_signed_in
from admin.web.errors import Missing
from admin.web.view import Page


@route(
    "/{rest:path}",
    http_method=[HttpMethod.GET, HttpMethod.POST],
    opt=for_signed_in(),
    status_code=200,
    sync_to_thread=False,
)
def nothing(rest: FromPath[str]) -> Page:
    """Raises Missing."""
    raise Missing(rest)


HANDLERS = [nothing]
