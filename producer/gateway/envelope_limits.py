"""Reads request bodies: sizes, numbers of items and depth are bounded before anything is done with them."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from message.envelope import CONTROL, MAX_BYTES, MAX_ID
from producer.gateway.problems import GatewayProblem

MOST_BODY: Final = MAX_BYTES
MOST_BATCH_BODY: Final = 8 << 20
MOST_ITEMS: Final = 1_000
MOST_DEPTH: Final = 32
"""Levels of objects and lists of one notification."""
MOST_CONTAINERS: Final = 20_000
MOST_IN_BATCH: Final = 200_000
"""Objects and lists of one notification and of a batch. A megabyte of empty lists would hold the event loop
for half a second, and millions of them keep the collector busy."""
NO_PATH: Final = r"\.{1,2}|/+"
"""Ids that no path can name."""
_NO_PATH: Final = re.compile(NO_PATH)
_ITEMS: Final = "notifications"
_CONTROL: Final = re.compile(CONTROL)
_JSON_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_ABSENT: Final = msgspec.Raw(b"")
# A list of Raw would make an object of each item before it is counted, millions in one body. An array of so
# many fields makes one more than the most; the decoder skips the rest, as it skips what is inside of each.
_Items: Final[Any] = msgspec.defstruct(
    "_Items", [(f"n{n}", msgspec.Raw, _ABSENT) for n in range(MOST_ITEMS + 1)], array_like=True
)


class _Batch(msgspec.Struct):
    notifications: _Items


class _Object(msgspec.Struct):
    """Any JSON object."""


_object_decoder = msgspec.json.Decoder(dict[str, Any])
_any_object_decoder = msgspec.json.Decoder(_Object)
_batch_decoder = msgspec.json.Decoder(_Batch)
_item_decoder = msgspec.json.Decoder()


def object_of(body: bytes) -> dict[str, Any]:
    """Returns the JSON object in a body. Raises GatewayProblem."""
    _check_containers(body)
    found: dict[str, Any] = _object_in(_object_decoder, body)
    return found


def items_of(body: bytes) -> list[msgspec.Raw]:
    """Returns the items of a batch, not yet decoded. Raises GatewayProblem."""
    items: list[msgspec.Raw] = []
    _check_containers(body, MOST_IN_BATCH)
    try:
        found = msgspec.structs.astuple(_read(_batch_decoder, body).notifications)
        items = [one for one in found if one is not _ABSENT]
    except msgspec.ValidationError:
        _object_in(_any_object_decoder, body)
    if not items:
        detail = f"give a list {_ITEMS!r} of 1 to {MOST_ITEMS:,} notifications"
        raise GatewayProblem(422, "no_items", detail, path=f"$.{_ITEMS}")
    if len(items) > MOST_ITEMS:
        detail = f"more than {MOST_ITEMS:,} items; send at most {MOST_ITEMS:,} in one batch"
        raise GatewayProblem(413, "too_many_items", detail, path=f"$.{_ITEMS}")
    return items


def item_of(raw: msgspec.Raw) -> Any:
    """Returns an item of a batch. Raises GatewayProblem, as for a body of its own."""
    size = len(memoryview(raw))
    if size > MAX_BYTES:
        raise too_large(f"the notification has {size:,} bytes; at most {MAX_BYTES:,} are taken")
    _check_containers(bytes(raw))
    return _read(_item_decoder, raw)


def too_large(detail: str) -> GatewayProblem:
    """Returns the 413 of a body or an item."""
    return GatewayProblem(413, "too_large", detail)


def _check_containers(body: bytes, most: int = MOST_CONTAINERS) -> None:
    """Bounds the objects and lists before they are made. Raises GatewayProblem."""
    if _opened(body) <= most or _opened(_JSON_STRING.sub(b"", body)) <= most:
        return
    raise GatewayProblem(413, "too_many_values", f"more than {most:,} objects and lists", path="$")


def _opened(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")


def _object_in(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return _read(decoder, body)
    except msgspec.ValidationError as exc:
        raise GatewayProblem(400, "not_an_object", "the body must be one JSON object") from exc


def _read(decoder: msgspec.json.Decoder[Any], body: bytes | msgspec.Raw) -> Any:
    """Returns what the decoder finds. Raises GatewayProblem for what is not JSON, ValidationError."""
    try:
        str(body, "utf-8")
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except UnicodeDecodeError as exc:
        detail = f"the body is not UTF-8 at byte {exc.start}"
        raise GatewayProblem(400, "not_json", detail) from exc
    except (msgspec.DecodeError, RecursionError) as exc:
        detail = "the body is nested too deeply" if isinstance(exc, RecursionError) else str(exc)
        raise GatewayProblem(400, "not_json", f"the body is not JSON: {detail}") from exc


def notification_fields(item: Any) -> dict[str, Any]:
    """Returns an item that is an object of bounded depth. Raises GatewayProblem."""
    if not isinstance(item, dict):
        raise GatewayProblem(422, "not_an_object", "a notification is one JSON object", path="$")
    if not is_shallow(item):
        detail = f"nested in more than {MOST_DEPTH} levels"
        raise GatewayProblem(422, "too_deep", detail, path="$")
    return item


def own_id(item: Any) -> str:
    """Returns the id that a notification names itself; empty if it names none that is valid."""
    name = item.get("id") if isinstance(item, dict) else None
    if isinstance(name, str) and len(name) <= MAX_ID and name.isascii() and name.isprintable():
        return name
    return ""


def check_path(message_id: str) -> None:
    """Refuses an id that no path can name: clients and servers take dots and slashes alone for parts of it.
    Raises GatewayProblem."""
    if _NO_PATH.fullmatch(message_id):
        detail = "an id of one or two dots, or of slashes alone, has no path: choose another one"
        raise GatewayProblem(422, "bad_id", detail, path="$.id")


def check_name(name: Any, most: int, path: str) -> None:
    """Checks an id (of MAX_ID characters, all of them ASCII) or a business id. Raises GatewayProblem."""
    good = isinstance(name, str) and 0 < len(name) <= most and not _CONTROL.search(name)
    if good and most == MAX_ID:
        good = name.isascii()
    elif good:
        good = not any("\ud800" <= one <= "\udfff" for one in name)
    if not good:
        detail = f"must be a text of 1 to {most} characters, none of them a control character"
        raise GatewayProblem(422, "bad_name", detail, path=path)


def is_shallow(value: Any, most: int = MOST_DEPTH) -> bool:
    """Returns whether objects and lists are nested in at most `most` levels."""
    level = [value]
    for _ in range(most + 1):
        nested: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                nested += [x for x in one.values() if isinstance(x, dict | list)]
            elif isinstance(one, list):
                nested += [x for x in one if isinstance(x, dict | list)]
        if not nested:
            return True
        level = nested
    return False
