"""`/keys`: API keys of the gateway. A secret is on the answer to its making, once, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from litestar import get, post
from litestar.params import FromPath
from sqlalchemy import Connection

from admin.access import Person, Role, needs
from admin.parts import ConsoleParts
from admin.web.forms import SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View
from idempotency.error_mapping import errors
from producer.gateway.api_keys import KeyRefused, KeyScope, KeyTerms, terms_of
from producer.gateway.key_store import KeyMade, KeyStore

_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_LONGEST_DAYS: Final = 3_650


@get("/keys", opt=needs(Role.ADMIN), sync_to_thread=True)
def keys(view: GivenView, parts: GivenParts) -> Page:
    """The list."""
    return _page(view, parts)


@post("/keys", opt=needs(Role.ADMIN), status_code=200, sync_to_thread=True)
def add(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Makes a key, and shows it once. Raises WrongForm."""
    name, reason = form.required("name"), form.reason()
    life_ms = _most(form, "days", _LONGEST_DAYS) * _DAY_MS if form.text("days") else None
    with _refusals():
        terms = _terms(form)
        with _transaction(parts) as (store, connection):
            made = store.add(connection, name, terms, by=person.name, life_ms=life_ms)
            detail = f"{' '.join(terms.scopes)} {','.join(terms.lanes)}: {reason}"
            _record(parts, connection, view, person, "key.new", name, detail)
    return _page(view, parts, made)


@post("/keys/{name:str}/rotate", opt=needs(Role.ADMIN), status_code=200, sync_to_thread=True)
def rotate(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm, name: FromPath[str]
) -> Page:
    """Adds a secret, and shows it once. Raises WrongForm."""
    overlap_ms, reason = _most(form, "hours", _LONGEST_DAYS) * _HOUR_MS, form.reason()
    with _refusals(), _transaction(parts) as (store, connection):
        made = store.rotate(connection, name, overlap_ms=overlap_ms)
        _record(parts, connection, view, person, "key.rotate", name, reason)
    return _page(view, parts, made)


@post("/keys/{name:str}/revoke", opt=needs(Role.ADMIN), status_code=200, sync_to_thread=True)
def revoke(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm, name: FromPath[str]
) -> Page:
    """Ends a key for ever. Raises WrongForm."""
    reason = form.reason()
    with _refusals(), _transaction(parts) as (store, connection):
        store.revoke(connection, name)
        _record(parts, connection, view, person, "key.revoke", name, reason)
    return view.redirect("/keys")


def _page(view: View, parts: ConsoleParts, made: KeyMade | None = None) -> Page:
    found = _store(parts).shown()
    headers = {"hx-push-url": "/keys"} if made else {}
    return view.page("api_keys.html", headers=headers, keys=found, made=made, scopes=[*KeyScope])


def _store(parts: ConsoleParts) -> KeyStore:
    return KeyStore(parts.databases.primary, parts.databases.clock)


@contextmanager
def _transaction(parts: ConsoleParts) -> Iterator[tuple[KeyStore, Connection]]:
    with errors(), parts.databases.primary.begin() as connection:
        yield _store(parts), connection


@contextmanager
def _refusals() -> Iterator[None]:
    """Maps KeyRefused to WrongForm."""
    try:
        yield
    except KeyRefused as exc:
        raise WrongForm(f"api_keys.{exc.code}") from exc


def _terms(form: SentForm) -> KeyTerms:
    scopes = [scope for scope in KeyScope if form.text(f"scope_{scope}")]
    rate, burst = form.number("rate"), form.number("burst")
    lanes = form.text("lanes")  # the page shows that an empty field means *
    return terms_of(scopes, lanes.split(",") if lanes else [], rate, burst)


def _most(form: SentForm, name: str, most: int) -> int:
    found = form.number(name)
    if found > most:
        raise WrongForm("frame.field_number", name, name=name)
    return found


def _record(
    parts: ConsoleParts,
    connection: Connection,
    view: View,
    person: Person,
    action: str,
    subject: str,
    reason: str,
) -> None:
    parts.journal.record(
        connection,
        person=person.name,
        action=action,
        subject=subject,
        reason=reason,
        address=view.address,
    )


HANDLERS = [keys, add, rotate, revoke]
