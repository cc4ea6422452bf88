"""Envelopes at the edge of each rule: what the decoder takes, and what it refuses.

Each case changes one place of a good envelope. `REMOVED` stands for a member that is left out.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from message.envelope import (
    CONTROL,
    MAX_ID,
    MAX_RECEIVER,
    MAX_RECEIVERS,
    EnvelopeError,
    Notification,
    decode,
)
from message.vocabulary import CHANNELS, KINDS

REMOVED: Final = object()
_END_OF_TIME: Final = 253_402_300_799_999
_KEYS: Final = ("biz_id", "account", "ordering_key", "resend_of")
_OBJECTS: Final = ("attributes", "content", "template")


class EdgeCase(NamedTuple):
    """One change of a good envelope; `good`: the contract still takes it."""

    field: str
    value: Any
    good: bool

    @property
    def envelope(self) -> dict[str, Any]:
        """The good envelope with the change."""
        return changed(self.field, self.value)


def good() -> dict[str, Any]:
    """Returns an envelope with every field."""
    return {
        "v": 1,
        "id": "0192f3c47b1a7cc0a1b2c3d4e5f60718",
        "biz_id": "order-1001",
        "channel": "sms",
        "kind": "notice",
        "receivers": ["+8613800000001"],
        "account": None,
        "template": {"id": "login-code", "params": {"code": "4711"}},
        "created_at": 1_790_000_000_000,
        "ttl_ms": 300_000,
        "ordering_key": None,
        "resend_of": None,
        "attributes": {},
    }


def changed(field: str, value: Any) -> dict[str, Any]:
    """Returns a good envelope with another value there; `template.id` is a member of a member."""
    made = good()
    outer, _, inner = field.partition(".")
    place = made[outer] if inner else made
    if value is REMOVED:
        del place[inner or outer]
    else:
        place[inner or outer] = value
    if outer == "content":
        del made["template"]
    return made


def taken(envelope: Any) -> bool:
    """Returns whether the decoder takes it."""
    try:
        decode(json.dumps(envelope).encode())
    except EnvelopeError:
        return False
    return True


def _controls() -> list[str]:
    return ["\x00", "\x1f", "\x7f", "\x9f", "\u2028", "\u2029", "a\n", "\na"]


def cases() -> list[EdgeCase]:
    """Returns every case."""
    assert CONTROL
    return [
        *_whole(),
        *_ids(),
        *_texts(),
        *_receivers(),
        *_numbers(),
        *_bodies(),
        *_types(),
    ]


def _whole() -> list[EdgeCase]:
    needed = ("id", "channel", "kind", "receivers", "created_at")
    fields = Notification.__struct_fields__
    absent = [EdgeCase(f, REMOVED, f not in needed) for f in fields if f not in _OBJECTS[1:]]
    lanes = [
        *(EdgeCase("channel", one, True) for one in CHANNELS),
        *(EdgeCase("kind", one, True) for one in KINDS),
        *(EdgeCase("channel", one, False) for one in ("", "SMS", "fax", "sms ")),
        *(EdgeCase("kind", one, False) for one in ("", "Notice", "alert", "notice\n")),
    ]
    return [*absent, *lanes, EdgeCase("unknown", {"any": [1, None]}, True)]


def _ids() -> list[EdgeCase]:
    fine = ("x", " ", "~", "a b", "x" * MAX_ID)
    wrong = ("", "x" * (MAX_ID + 1), "é", "x\n", "\nx", "\t", "\x7f", "鸿", "x\x00")
    return [
        *(EdgeCase("id", one, True) for one in fine),
        *(EdgeCase("id", one, False) for one in wrong),
    ]


def _texts() -> list[EdgeCase]:
    found = []
    for field in (*_KEYS, "template.id"):
        found += [
            EdgeCase(field, one, True) for one in ("", " ", "订单", "😀" * MAX_RECEIVER, "\ufeff")
        ]
        found += [EdgeCase(field, one, False) for one in _controls()]
        found.append(EdgeCase(field, "x" * (MAX_RECEIVER + 1), False))
    return found


def _receivers() -> list[EdgeCase]:
    fine = ("x", "鸿", "x" * MAX_RECEIVER, "😀" * MAX_RECEIVER, "a b", " a", "a\u3000", "\ufeff")
    blank = ("", " ", "  ", "\u00a0", "\u1680", "\u2000\u200a", "\u202f", "\u205f", "\u3000 ")
    wrong = (*blank, *_controls(), "x" * (MAX_RECEIVER + 1), 1, None, ["x"])
    lists = [
        ([], False),
        (["x"] * MAX_RECEIVERS, True),
        (["x"] * (MAX_RECEIVERS + 1), False),
        (["x", "x"], True),
        ("x", False),
        ({"x": 1}, False),
    ]
    return [
        *(EdgeCase("receivers", one, well) for one, well in lists),
        *(EdgeCase("receivers", ["x", one], True) for one in fine),
        *(EdgeCase("receivers", ["x", one], False) for one in wrong),
    ]


def _numbers() -> list[EdgeCase]:
    return [
        *(EdgeCase("created_at", one, True) for one in (0, 1, _END_OF_TIME)),
        *(EdgeCase("created_at", one, False) for one in (-1, _END_OF_TIME + 1, 1.5, 10**30)),
        *(EdgeCase("ttl_ms", one, True) for one in (1, 10**30, None)),
        *(EdgeCase("ttl_ms", one, False) for one in (0, -1, 1.5)),
        *(EdgeCase("v", one, False) for one in (0, 2, -1, 1.5)),
    ]


def _bodies() -> list[EdgeCase]:
    both = {**good(), "content": {"text": "x"}}
    assert not taken(both)
    return [
        EdgeCase("template", REMOVED, False),
        EdgeCase("template", None, False),
        EdgeCase("template", {}, False),
        EdgeCase("template", {"id": "x", "more": 1}, True),
        EdgeCase("template.id", REMOVED, False),
        EdgeCase("template.params", REMOVED, True),
        EdgeCase("template.params", {"lines": [{"price": 1.5}], "on": True, "no": None}, True),
        EdgeCase("content", {}, True),
        EdgeCase("content", {"text": "x\x00\n", "n": [1, 2.5, None]}, True),
        EdgeCase("content", None, False),
    ]


def _types() -> list[EdgeCase]:
    """Every field with a value of each type that it does not have."""
    texts = ("id", "channel", "kind", *_KEYS, "template.id")
    values: list[Any] = [True, False, 7, 1.5, "7", [], ["x"], {}, {"x": 1}]
    found = []
    for field in (*texts, "created_at", "ttl_ms", "v", *_OBJECTS, "template.params"):
        for value in values:
            kind = type(value)
            if field in texts:
                fits = kind is str
            elif field in ("created_at", "ttl_ms", "v"):
                fits = kind is int
            else:
                fits = kind is dict
            if not fits:
                found.append(EdgeCase(field, value, False))
    nulls = ("id", "channel", "kind", "receivers", "created_at", "v", "attributes", "template.id")
    found += [EdgeCase(field, None, False) for field in (*nulls, "template.params")]
    return found
