"""Compiles the parts of a template: texts, `{ var = … }` and `{ file = … }`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, time
from typing import Any, Final

import msgspec

from policy.templates.page import Page, Place
from policy.templates.sandbox import Text, Unfit, compiled, without_mentions

HTML_KEY: Final = "html"
"""Texts under this key, at any depth, are HTML: values are escaped in them, and only there."""

Part = Any
"""A Text, an OwnValue, a table or list of parts, or a constant."""


class OwnValue(msgspec.Struct, frozen=True):
    """`{ var = "count" }`: the variable's own value, not a text."""

    name: str
    chat: bool = False
    """Whether mentions in its texts are disabled."""


def filled(part: Part, values: Mapping[str, Any]) -> Any:
    """Returns the part filled with values (of `bound`). Raises Overrun, Broken."""
    if isinstance(part, Text):
        return part.render(values)
    if isinstance(part, dict):
        return {key: filled(one, values) for key, one in part.items()}
    if isinstance(part, list):
        return [filled(one, values) for one in part]
    return _own(part, values) if isinstance(part, OwnValue) else part


def _own(part: OwnValue, values: Mapping[str, Any]) -> Any:
    value = msgspec.to_builtins(values[part.name])
    return _without_mentions(value) if part.chat else value


def _without_mentions(value: Any) -> Any:
    if isinstance(value, str):
        return without_mentions(value)
    if isinstance(value, list):
        return [_without_mentions(one) for one in value]
    if isinstance(value, dict):
        return {key: _without_mentions(one) for key, one in value.items()}
    return value


def readers(part: Part, where: Place = ()) -> Iterator[tuple[Place, frozenset[str]]]:
    """Yields the place and the variables of every part that reads some."""
    if isinstance(part, Text):
        yield where, part.names
    elif isinstance(part, OwnValue):
        yield where, frozenset({part.name})
    elif isinstance(part, dict):
        for key, one in part.items():
            yield from readers(one, (*where, key))
    elif isinstance(part, list):
        for one in part:
            yield from readers(one, where)


def parts(
    page: Page, table: dict[str, Any], place: Place, *, html: bool = False
) -> dict[str, Part]:
    """Returns the table with its parts compiled. Reports their problems."""
    return {
        key: _part(page, value, (*place, key), html=html or key == HTML_KEY)
        for key, value in table.items()
    }


def expanded(page: Page, value: Any) -> Any:
    """Returns the value with the texts of its files: the input of a template's version. A variable, a
    parameter or a key of the content may be named `file`, too; its value names none of the files read."""
    if isinstance(value, list):
        return [expanded(page, one) for one in value]
    if not isinstance(value, dict):
        return value
    named = value["file"] if value.keys() == {"file"} else None
    if isinstance(named, str) and named in page.files:
        return page.files[named]
    return {key: expanded(page, one) for key, one in value.items()}


def _part(page: Page, value: Any, place: Place, *, html: bool) -> Part:
    if isinstance(value, str):
        return _compiled(page, value, place, html=html)
    if isinstance(value, list):
        return [_part(page, one, place, html=html) for one in value]
    if isinstance(value, dict):
        return _table(page, value, place, html=html)
    if isinstance(value, date | time):
        page.report(place, "is a date of TOML's own; write it as a text")
    return value


def _table(page: Page, value: dict[str, Any], place: Place, *, html: bool) -> Part:
    named = next(iter(value.values()), None)
    if value.keys() == {"var"} and isinstance(named, str):
        return OwnValue(named, page.chat)
    if value.keys() == {"file"} and not isinstance(named, dict | list):
        return _of_file(page, named, place, html=html)
    return parts(page, value, place, html=html)


def _of_file(page: Page, named: Any, place: Place, *, html: bool) -> Part:
    if isinstance(named, str):
        return _compiled(page, page.file(named, place), place, html=html, file=named)
    page.report((*place, "file"), "must be a file's name, as a text")
    return ""


def _compiled(page: Page, text: str, place: Place, *, html: bool, file: str = "") -> Text | str:
    try:
        return compiled(text, html=html, chat=page.chat)
    except Unfit as exc:
        if file:
            page.report(place, f"{file}:{exc.line}: {exc}")
        else:
            page.report(place, str(exc), page.text_line(place) + exc.line - 1)
        return ""
