"""Reads request bodies: sizes, numbers of items and depth are bounded before anything is done with them."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from message.envelope import CONTROL, MAX_BYTES, MAX_ID
from producer.gateway.problems import GatewayProblem

MOST_BODY: Final = MAX_BYTES + (64 << 10)
"""Bytes of a single notification: the envelope's own limit decides."""
MOST_BATCH_BODY: Final = 8 << 20
MOST_ITEMS: Final = 1_000
MOST_DEPTH: Final = 32
"""Levels of objects and lists of one notification."""
_ITEMS: Final = "notifications"
_CONTROL: Final = re.compile(CONTROL)
_decoder = msgspec.json.Decoder()


def object_of(body: bytes) -> dict[str, Any]:
    """Returns the JSON object in a body. Raises GatewayProblem."""
    try:
        str(body, "utf-8")
        found = _decoder.decode(body)
    except UnicodeDecodeError as exc:
        detail = f"the body is not UTF-8 at byte {exc.start}"
        raise GatewayProblem(400, "not_json", detail) from exc
    except (msgspec.DecodeError, RecursionError) as exc:
        detail = "the body is nested too deeply" if isinstance(exc, RecursionError) else str(exc)
        raise GatewayProblem(400, "not_json", f"the body is not JSON: {detail}") from exc
    if not isinstance(found, dict):
        raise GatewayProblem(400, "not_an_object", "the body must be one JSON object")
    return found


def items_of(body: bytes) -> list[Any]:
    """Returns the items of a batch. Raises GatewayProblem."""
    found = object_of(body)
    items = found.get(_ITEMS)
    if not isinstance(items, list) or not items:
        detail = f"give a list {_ITEMS!r} of 1 to {MOST_ITEMS:,} notifications"
        raise GatewayProblem(422, "no_items", detail, path=f"$.{_ITEMS}")
    if len(items) > MOST_ITEMS:
        detail = f"{len(items):,} items; send at most {MOST_ITEMS:,} in one batch"
        raise GatewayProblem(413, "too_many_items", detail, path=f"$.{_ITEMS}")
    return items


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
