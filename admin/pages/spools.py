"""`/spools`: clients' spools in folders of the console's host, `console.spool_dirs`.

A spool is a file beside a business process. The console sees those that its own host has, or that are
mounted there, and no other (decision 274). No content is shown, and receivers are masked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from litestar import get, post

from admin.access import ANY_LANE, Person, Role, needs
from admin.parts import ConsoleParts
from admin.web.forms import Conflict, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page
from hongyan_client.errors import ClientError
from hongyan_client.spool.folder import SpoolFolder
from hongyan_client.spool.listing import row_line
from hongyan_client.spool.manual_drain import drained_by_hand
from hongyan_client.spool.rows import SpooledRow
from hongyan_client.spool.store import SpoolCounts
from message.vocabulary import lane_of_topic
from tracing.masks import impersonal

_SHOWN: Final = 50
_DRAIN_S: Final = 8.0
"""A person waits; a spool with more goes on at the next order, or by its own application."""
_FILE: Final = "spool.db"


class ShownRow(NamedTuple):
    """One record of a spool."""

    fields: dict[str, object]
    """As `hongyan-spool list` shows them: receivers are masked."""
    lane: str
    """Empty: its topic is no lane's."""
    kept_at: int
    """Epoch milliseconds."""
    expires_at: int
    """Likewise."""


class ShownSpool(NamedTuple):
    """One folder."""

    folder: str
    trouble: str = ""
    """Why it could not be read; empty: it could."""
    counts: SpoolCounts | None = None
    """None: it could not be read, or no client has made it yet."""
    oldest_ms: int = 0
    """Age of the oldest record that waits; 0: none."""
    damaged: Sequence[str] = ()
    """Damaged files that were replaced."""
    rows: Sequence[ShownRow] = ()


@get("/spools", opt=needs(Role.VIEWER), sync_to_thread=True)
def spools(view: GivenView, parts: GivenParts, person: GivenPerson) -> Page:
    """The figures of each folder, and the first records of one's lanes."""
    now_ms = parts.wall_ms()
    found = [
        read_spool(parts, person, folder, now_ms) for folder in parts.settings.console.spool_dirs
    ]
    return view.page(
        "spools.html", spools=found, operates=person.everywhere(Role.OPERATOR), masked=impersonal
    )


@post("/spools/drain", opt=needs(Role.OPERATOR), status_code=200, sync_to_thread=True)
def drain_spool(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Publishes what waits in a folder, with `parked` what is parked, too. Needs the role for all lanes: a
    spool has records of any. Raises WrongForm, Forbidden, Conflict."""
    person.require(Role.OPERATOR, ANY_LANE)
    folder, reason = form.required("folder"), form.reason()
    if folder not in parts.settings.console.spool_dirs or not _there(folder):
        raise WrongForm("spools.unknown", "folder")
    parts.journal.record_alone(
        person=person.name,
        action="spool.drain",
        subject=folder,
        lane="",
        reason=reason,
        address=view.address,
    )
    kafka = parts.settings.kafka
    try:
        with _opened(folder) as spool:
            done = drained_by_hand(
                spool,
                kafka.bootstrap,
                {name: str(value) for name, value in kafka.client.items()},
                _DRAIN_S,
                with_parked=form.text("parked") == "on",
            )
    except (ClientError, OSError) as exc:
        raise WrongForm("spools.not_drained", cause=impersonal(str(exc))) from exc
    if not done["published"] and (done["left"] or done["parked"]):
        cause = impersonal(str(done["error"] or "-"))
        raise Conflict("spools.none_went", cause=cause)
    return view.redirect("/spools")


def read_spool(parts: ConsoleParts, person: Person, folder: str, now_ms: int) -> ShownSpool:
    """Reads one folder. Makes nothing, and changes no rights of it."""
    path = Path(folder)
    if not path.is_dir():
        return ShownSpool(folder, "no such folder on this host")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return ShownSpool(folder, "its rights let only the application's user in")
    if not _there(folder):
        return ShownSpool(folder)
    try:
        with _opened(folder) as spool:
            return _read(parts, person, spool, now_ms)
    except (ClientError, OSError) as exc:
        return ShownSpool(folder, impersonal(str(exc)))


@contextmanager
def _opened(folder: str) -> Iterator[SpoolFolder]:
    """Yields the folder. The lock file that it opened would stay open otherwise."""
    opened = SpoolFolder(Path(folder))
    try:
        yield opened
    finally:
        opened.drain_lock.close()


def _read(parts: ConsoleParts, person: Person, folder: SpoolFolder, now_ms: int) -> ShownSpool:
    store = folder.store()
    try:
        counts, rows = store.counts(), store.rows(_SHOWN)
    finally:
        store.close()
    oldest = counts.oldest_kept_at
    return ShownSpool(
        str(folder.path),
        "",
        counts,
        0 if oldest is None else max(0, now_ms - oldest),
        [path.name for path in folder.damaged_files()],
        [one for one in (_shown(parts, row) for row in rows) if _may(person, one)],
    )


def _shown(parts: ConsoleParts, row: SpooledRow) -> ShownRow:
    lane = lane_of_topic(row.topic, parts.settings.kafka.topic_prefix)
    name = lane.name if lane is not None else ""
    return ShownRow(row_line(row), name, row.kept_at, row.expires_at)


def _may(person: Person, row: ShownRow) -> bool:
    """Returns whether the person sees the row's lane; a row without one needs all lanes."""
    return person.may(Role.VIEWER, row.lane) if row.lane else person.everywhere(Role.VIEWER)


def _there(folder: str) -> bool:
    return (Path(folder) / _FILE).is_file()


HANDLERS = [spools, drain_spool]
