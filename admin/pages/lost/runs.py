"""`/lost/runs`: runs of the Spark jobs, the newest first. They cover all lanes, and name no delivery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from litestar import get
from litestar.params import FromQuery

from admin.access import Role, needs
from admin.web.given import GivenParts, GivenView
from admin.web.paging import keys_of, page_of
from admin.web.view import Page
from idempotency.lost.runs import Runs, SparkRun

_PER_PAGE: Final = 50
_MOST: Final = 40
"""Figures of one run that are shown."""


class RunShown(NamedTuple):
    """A run with its positions and figures in flat form."""

    run: SparkRun
    positions: list[tuple[str, str]]
    figures: list[tuple[str, str]]


@get("/lost/runs", opt=needs(Role.VIEWER), sync_to_thread=True)
def spark_runs(view: GivenView, parts: GivenParts, after: FromQuery[str] = "") -> Page:
    """The runs, and who holds the duty now."""
    runs = Runs(parts.databases.reads, parts.databases.reads_clock)
    before = keys_of(after, int)
    found = runs.list(_PER_PAGE + 1, before) if before else runs.list(_PER_PAGE + 1)
    rows = page_of([_shown(one) for one in found], _PER_PAGE, lambda one: one.run.id)
    return view.page("lost/runs.html", rows=rows, holder=runs.holder(), database_ms=runs.now_ms())


def _shown(run: SparkRun) -> RunShown:
    return RunShown(run, _positions(run.positions), list(flat(run.figures))[:_MOST])


def _positions(written: str) -> list[tuple[str, str]]:
    """Returns Kafka's positions by name; text that is no JSON as it is."""
    if not written:
        return []
    try:
        return list(flat(msgspec.json.decode(written)))[:_MOST]
    except (msgspec.DecodeError, ValueError):
        return [("", written[:400])]


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yields the leaves of nested maps, each with the names that lead to it."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{name} {key}".strip())
    elif isinstance(value, int) and not isinstance(value, bool):
        yield name, f"{value:,}"
    else:
        yield name, str(value)[:200]


HANDLERS = [spark_runs]
