"""Forms as they come: every field one text, bounded, checked with sentences for the person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from litestar import Request
from litestar.datastructures import FormMultiDict
from litestar.exceptions import ValidationException

LONGEST_FIELD: Final = 64 << 10
LONGEST_TEXT: Final = 1 << 20
"""Characters of a policy, of templates and of each file of theirs: as many as a template may make."""
LONGEST_REASON: Final = 1_000
NUL: Final = "\0"
"""PostgreSQL has no such character."""


class WrongForm(Exception):
    """A form that is refused: status 422, and its sentence beside the form. The text is a key."""

    def __init__(self, key: str, field: str = "", **arguments: object) -> None:
        super().__init__(key)
        self.key = key
        self.field = field
        self.arguments = arguments


class Conflict(Exception):
    """Another person, or the program, was first: status 409. The text is a key."""

    def __init__(self, key: str, **arguments: object) -> None:
        super().__init__(key)
        self.key = key
        self.arguments = arguments


class SentFile(NamedTuple):
    """An uploaded file. Its name is the browser's, and only to be shown."""

    name: str
    content: bytes


async def form_fields(request: Request[Any, Any, Any]) -> FormMultiDict:
    """Returns the fields of a request. Raises ValidationException for one whose text cannot be read."""
    try:
        return await request.form()
    except (UnicodeError, LookupError) as exc:  # no UTF-8, or a charset that nobody knows
        raise ValidationException from exc


class SentForm:
    """The fields of one request."""

    def __init__(
        self,
        fields: Mapping[str, str],
        lists: Mapping[str, list[str]] | None = None,
        files: Mapping[str, SentFile] | None = None,
    ) -> None:
        self._fields = fields
        self._lists = lists or {}
        self._files = files or {}

    def text(self, name: str, default: str = "") -> str:
        """Returns a field without blanks around it. Raises WrongForm for one that is too long."""
        return self.exactly(name, default).strip()

    def exactly(self, name: str, default: str = "", longest: int = LONGEST_FIELD) -> str:
        """Returns a field as it was typed, such as a password. Raises WrongForm."""
        value = self._fields.get(name, default)
        if len(value) > longest:
            raise WrongForm("frame.field_long", name)
        if NUL in value:
            raise WrongForm("frame.refused", name)
        return value

    def file(self, name: str) -> SentFile | None:
        """Returns an uploaded file; None without one, and for an empty one without a name."""
        found = self._files.get(name)
        return found if found is not None and (found.name or found.content) else None

    def every(self, name: str) -> list[str]:
        """Returns all values of a field that may come several times. Raises WrongForm."""
        found = self._lists.get(name, [])
        if any(NUL in value for value in found):
            raise WrongForm("frame.refused", name)
        return found

    def required(self, name: str) -> str:
        """Returns a field. Raises WrongForm without one."""
        value = self.text(name)
        if not value:
            raise WrongForm("frame.field_missing", name, name=name)
        return value

    def reason(self) -> str:
        """Returns the reason of an action. Raises WrongForm without one."""
        value = self.text("reason")
        if not value:
            raise WrongForm("frame.reason_missing", "reason")
        if len(value) > LONGEST_REASON:
            raise WrongForm("frame.field_long", "reason")
        return value

    def number(self, name: str) -> int:
        """Returns a whole number, with blanks and commas between its digits. Raises WrongForm."""
        value = self.required(name).replace(",", "").replace(" ", "")
        if not (value.isascii() and value.isdigit()) or len(value) > 15:
            raise WrongForm("frame.field_number", name, name=name)
        return int(value)
