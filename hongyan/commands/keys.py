"""`hongyan keys`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from hongyan.author import author_of
from hongyan.errors import WrongUsage
from hongyan.flags import duration_ms
from hongyan.tables import listing, local_time
from hongyan.terminal import PROBLEMS, complain, err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from producer.gateway.key_store import KeyMade, KeyShown, KeyStore

app = typer.Typer(name="keys", help="API keys of the gateway.", no_args_is_help=True)

NEW = explained(
    "Make an API key, and show it once: it is stored nowhere.",
    "hongyan keys new shop --scope send --lane 'sms.*' --lane email.notice",
    "hongyan keys new shop --scope send --scope read --scope recall --expires 90d --json",
)
LIST = explained(
    "List the keys: prefix, scopes, lanes, rate and end, never a secret.",
    "hongyan keys list",
    "hongyan keys list --json",
)
ROTATE = explained(
    "Give a key a new secret, and show it once. The one before holds until the overlap is over.",
    "hongyan keys rotate shop --overlap 24h",
    "hongyan keys rotate shop --overlap 0     the old one ends now",
)
REVOKE = explained(
    "End a key with all of its secrets, for ever. Every gateway obeys within seconds.",
    "hongyan keys revoke shop",
)
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]
_NAME = Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")]


@app.command("new", help=NEW)
def new(
    context: typer.Context,
    name: _NAME,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="SCOPE", help="send, recall or read; repeat it."),
    ] = None,
    lane: Annotated[
        list[str] | None,
        typer.Option("--lane", metavar="PATTERN", help="Lanes, as sms.*; repeat it. Default: all."),
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", help="Notifications a second.")
    ] = 100.0,
    burst: Annotated[
        int, typer.Option("--burst", metavar="N", help="Most notifications at once.")
    ] = 1_000,
    expires: Annotated[
        str,
        typer.Option("--expires", metavar="TIME", help="Life of the key: 90d.", show_default=False),
    ] = "",
    author: Annotated[
        str, typer.Option("--author", metavar="NAME", help="Maker.", show_default="user@host")
    ] = "",
    as_json: _JSON = False,
) -> None:
    from producer.gateway.api_keys import terms_of

    life_ms = duration_ms("--expires", expires) if expires else None
    if expires and not life_ms:
        raise WrongUsage(f"--expires {expires!r}: a key lives longer than that")
    by = author_of(author)
    with _changing(context) as (store, connection):
        terms = terms_of(scope or [], lane or [], rate, burst)
        made = store.add(connection, name, terms, by=by, life_ms=life_ms)
    _show_made(made, as_json=as_json)


@app.command("list", help=LIST)
def list_(context: typer.Context, as_json: _JSON = False) -> None:
    with _store(context) as store:
        keys = store.shown()
    if as_json:
        print_json(keys)
    else:
        _table(keys)


@app.command("rotate", help=ROTATE)
def rotate(
    context: typer.Context,
    name: _NAME,
    overlap: Annotated[
        str,
        typer.Option("--overlap", metavar="TIME", help="Time for which the old secret holds."),
    ] = "24h",
    as_json: _JSON = False,
) -> None:
    overlap_ms = 0 if overlap == "0" else duration_ms("--overlap", overlap)
    with _changing(context) as (store, connection):
        made = store.rotate(connection, name, overlap_ms=overlap_ms)
    _show_made(made, as_json=as_json)


@app.command("revoke", help=REVOKE)
def revoke(context: typer.Context, name: _NAME) -> None:
    with _changing(context) as (store, connection):
        store.revoke(connection, name)
    err().print(f"key {name!r} is revoked; every gateway obeys within seconds", markup=False)


@contextmanager
def _store(context: typer.Context) -> Iterator[KeyStore]:
    settings = settings_of(context)
    from hongyan.database import existing
    from idempotency.sql_ledger import clock_of
    from producer.gateway.key_store import KeyStore

    database = existing(settings)
    try:
        yield KeyStore(database, clock_of(database))
    finally:
        database.close()


@contextmanager
def _changing(context: typer.Context) -> Iterator[tuple[KeyStore, Connection]]:
    """Yields the store and a transaction. Complains about a refusal."""
    from idempotency.error_mapping import errors
    from producer.gateway.api_keys import KeyRefused

    try:
        with _store(context) as store, errors(), store.database.begin() as connection:
            yield store, connection
    except KeyRefused as exc:
        complain(str(exc))
        raise typer.Exit(PROBLEMS) from exc


def _show_made(made: KeyMade, *, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    out().print(made.token, markup=False, highlight=False, soft_wrap=True)
    err().print("keep it now: it is shown this once and stored nowhere", markup=False)
    if made.old_ends_at is not None:
        end = local_time(made.old_ends_at)
        err().print(f"the secret before ends at {end}", markup=False)


def _table(keys: list[KeyShown]) -> None:
    if not keys:
        out().print("there is no key; `hongyan keys new` makes one", markup=False)
        return
    titles = ("NAME", "STATE", "SCOPES", "LANES", "RATE", "PREFIXES", "EXPIRES")
    table = listing(titles, whole=("NAME", "STATE"))
    for one in keys:
        prefixes = " ".join(secret.prefix for secret in one.secrets)
        expires = local_time(one.expires_at) if one.expires_at is not None else "never"
        rate = f"{one.rate_per_s:g}/s, {one.burst}"
        table.add_row(
            *(one.name, one.state, " ".join(one.scopes), " ".join(one.lanes)),
            *(rate, prefixes, expires),
        )
    out().print(table)
