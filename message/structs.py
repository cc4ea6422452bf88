"""Descriptions of structs, made while a process has one thread.

msgspec describes a struct to itself when it first reads one. Several threads that are the first at the same
moment crash the process (msgspec 0.22: the description is shared before it is whole;
docs/decisions/051-structs-are-described-first.md).
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

_described: set[type] = {msgspec.Struct}


def describe_structs() -> int:
    """Has msgspec describe every loaded struct that it has not described yet. Returns how many. Call it
    before threads read any, after the modules that define them are imported."""
    new = [kind for kind in _all_of(msgspec.Struct) if kind not in _described]
    for kind in new:
        # A struct with a field that msgspec does not know cannot be read either.
        with suppress(TypeError, NameError):
            msgspec.json.Decoder(kind)
    _described.update(new)
    return len(new)


def _all_of(kind: type) -> list[type]:
    below: list[type] = kind.__subclasses__()
    return [*below, *(deeper for one in below for deeper in _all_of(one))]
