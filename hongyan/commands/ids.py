"""`hongyan id`."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hongyan.errors import WrongUsage
from hongyan.terminal import explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings

app = typer.Typer(name="id", help="Make and explain ids.", no_args_is_help=True)

NEW = explained(
    "Make ids. A uuid7 needs nothing. A snowflake is a number, and leases a worker number in the ledger's "
    "database for the time of the command.",
    "hongyan id new",
    "hongyan id new --count 1000 > ids.txt",
    "hongyan id new --kind snowflake --count 3 --json",
)
DECODE = explained(
    "Show what each id says: time, worker number and sequence of a snowflake, time of a UUIDv7.",
    "hongyan id decode 227794327961620487",
    "hongyan id decode 0192f3c47b1a7cc0a1b2c3d4e5f60718 --json",
)
_MOST: Final = 1_000_000
_SNOWFLAKE_DIGITS: Final = 19
_UUID7: Final = 7


class IdKind(StrEnum):
    """Kinds of ids that the command makes."""

    UUID7 = "uuid7"
    SNOWFLAKE = "snowflake"


@app.command("new", help=NEW)
def new(
    context: typer.Context,
    kind: Annotated[
        IdKind, typer.Option("--kind", "-k", help="uuid7 or snowflake.")
    ] = IdKind.UUID7,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=_MOST, help="So many.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    made = _snowflakes(settings_of(context), count) if kind is IdKind.SNOWFLAKE else _uuids(count)
    if as_json:
        print_json({"kind": kind.value, "ids": made})
    else:
        print("\n".join(made))


@app.command("decode", help=DECODE)
def decode(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Snowflakes or UUIDs.")],
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    found = [read_id(text.strip()) for text in ids]
    if as_json:
        print_json(found)
        return
    for one in found:
        parts = "  ".join(f"{name} {value}" for name, value in one.items() if name != "id")
        out().print(one["id"], style="bold", soft_wrap=True)
        out().print(f"  {parts}", soft_wrap=True)


def _uuids(count: int) -> list[str]:
    from message.ids import new_id

    return [new_id() for _ in range(count)]


def _snowflakes(settings: Settings, count: int) -> list[str]:
    from producer.ids.opening import id_generator

    with id_generator(settings) as generator:
        return [str(number) for number in generator.batch(count)]


def read_id(text: str) -> dict[str, Any]:
    """Returns what the id says. Raises WrongUsage for a text that is neither kind of id."""
    if text.isascii() and text.isdigit() and len(text) <= _SNOWFLAKE_DIGITS:
        return _snowflake(text)
    try:
        found = uuid.UUID(text)
    except ValueError as exc:
        raise WrongUsage(
            f"{text!r} is no id: a snowflake has up to {_SNOWFLAKE_DIGITS} digits, and a UUID 32 hex "
            "digits"
        ) from exc
    if found.version != _UUID7:
        return {"id": text, "kind": f"uuid{found.version or ''}", "at": None}
    at_ms = found.int >> 80
    return {"id": text, "kind": "uuid7", "at": _time(at_ms), "at_ms": at_ms}


def _snowflake(text: str) -> dict[str, Any]:
    from message.snowflake import decode_snowflake

    try:
        parts = decode_snowflake(int(text))
    except ValueError as exc:
        raise WrongUsage(str(exc)) from exc
    at = {"at": _time(parts.at_ms), "at_ms": parts.at_ms}
    place = {"worker": parts.worker, "sequence": parts.sequence}
    return {"id": text, "kind": "snowflake"} | at | place


def _time(at_ms: int) -> str | None:
    """Returns the time in ISO 8601; None past the year 9999."""
    try:
        return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        return None
