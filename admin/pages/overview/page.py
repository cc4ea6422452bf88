"""The handlers of the overview."""

from __future__ import annotations

from typing import Final

from litestar import MediaType, Response, get
from litestar.params import FromQuery

from admin.access import Person, Role, needs
from admin.pages.live import board_text, seen_by
from admin.pages.overview.charts import charts_of
from admin.pages.overview.live_lanes import BOARD
from admin.pages.overview.ranges import RANGES, AskedRange, asked_range, own_range, read_range
from admin.parts import ConsoleParts
from admin.web.given import GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View

_FIGURES: Final = "overview/figures.html"


@get("/", opt=needs(Role.VIEWER, "lane"), sync_to_thread=True)
def overview(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    over: FromQuery[str] = "",
    since: FromQuery[str] = "",
    until: FromQuery[str] = "",
    lane: FromQuery[str] = "",
) -> Page:
    """The page. Its live part comes from one board, its figures from the board of their range."""
    asked = asked_range(over, since, until, lane)
    value = parts.boards[BOARD.name].now()
    return view.page(
        "overview/page.html",
        live=board_text(BOARD, value, view, person),
        figures=figures_text(view, parts, person, asked),
        asked=asked,
        ranges=RANGES,
        own=own_range(asked, parts.wall_ms()),
    )


@get("/overview/figures", opt=needs(Role.VIEWER, "lane"), sync_to_thread=True)
def figures(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    over: FromQuery[str] = "",
    lane: FromQuery[str] = "",
) -> Page:
    """The part with the figures of a named range, which the page asks for again and again."""
    asked = asked_range(over, "", "", lane)
    return Response(figures_text(view, parts, person, asked), media_type=MediaType.HTML)


def figures_text(view: View, parts: ConsoleParts, person: Person, asked: AskedRange) -> str:
    """Returns the part with the figures, written once for all who see the same."""
    board = read_range(parts, asked, person)

    def write() -> str:
        charts = charts_of(board.value, view.text) if board.value is not None else []
        context = {"board": board, "value": board.value, "charts": charts, "asked": asked}
        return view.written_for_all(_FIGURES, **context)

    return board.texts.of((_FIGURES, asked, seen_by(view, person)), write)


HANDLERS = [overview, figures]
