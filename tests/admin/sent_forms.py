"""Forms of a page as a browser would send them."""

from __future__ import annotations

from html.parser import HTMLParser


class FormReader(HTMLParser):
    """Reads the fields of the forms of one action: inputs but boxes and buttons, and textareas."""

    def __init__(self, action: str) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: list[dict[str, str]] = []
        self._action = action
        self._inside = False
        self._textarea = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = values.get("action") == self._action
            self.forms += [{}] if self._inside else []
        name = values.get("name", "")
        if not self._inside or not name:
            return
        if tag == "input" and values.get("type") not in ("checkbox", "radio"):
            self.forms[-1][name] = values.get("value", "")
        if tag == "textarea":
            self._textarea = name
            self.forms[-1][name] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
        if tag == "textarea" and self._textarea:
            text = self.forms[-1][self._textarea].removeprefix("\n")
            self.forms[-1][self._textarea] = text.replace("\n", "\r\n")
            self._textarea = ""

    def handle_data(self, data: str) -> None:
        if self._textarea:
            self.forms[-1][self._textarea] += data


def form_of(page: str, action: str) -> dict[str, str]:
    """Returns the fields of the page's first form with this action."""
    reader = FormReader(action)
    reader.feed(page)
    reader.close()
    return reader.forms[0]
