"""The Jinja dialect of templates: no code, no randomness, bounded loops and output.

A rendering is a pure function of its variables, since a repeat must have the same bytes. Constructs
without bound are left out (macros, recursion, powers, `namespace`) or counted (loops, output). `safe` is
left out: in HTML every value is escaped. Output is never read as a template again.

Jinja on sandboxes, and why one alone bounds neither time nor memory:
https://jinja.palletsprojects.com/en/stable/sandbox/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from traceback import walk_tb
from typing import Any, Final

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, meta, nodes, pass_context
from jinja2.exceptions import SecurityError, UndefinedError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_LOOPS: Final = 10_000
"""Rounds of all loops in one rendering."""
MAX_OUTPUT: Final = 1 << 20
"""Characters of one rendering, all parts together: the size an envelope may have."""
_MAX_DIGITS: Final = 12
_BUDGET: Final = "_budget"
"""Name of the budget among the variables, whose own names begin with a letter."""

_QUOTED = re.compile(r"'([^']*)'")
_FILTERS: Final = (
    *("abs", "batch", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first"),
    *("float", "groupby", "int", "items", "join", "last", "length", "list", "lower", "map", "max"),
    *(
        "min",
        "reject",
        "rejectattr",
        "replace",
        "reverse",
        "round",
        "select",
        "selectattr",
        "slice",
    ),
    *("sort", "string", "striptags", "sum", "title", "tojson", "trim", "truncate", "unique"),
    *("upper", "urlencode", "wordcount"),
)
_METHODS: Final = frozenset({"cycle", "get", "isoformat", "items", "keys", "values"})
_BANNED: Final[Mapping[type[nodes.Node], str]] = {
    nodes.Macro: "macro",
    nodes.CallBlock: "call",
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "from",
    nodes.Extends: "extends",
    nodes.Block: "block",
    nodes.Pow: "**",
}


class Unfit(Exception):
    """A text that is no template of this dialect; `line` counts from 1."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


class Overrun(Exception):
    """A rendering that passed one of the bounds."""


class Broken(Exception):
    """A rendering that failed; the text holds no value of a variable, which may be a secret."""


class Budget:
    """Loops and characters that one rendering may still use. For one thread."""

    __slots__ = ("_loops", "_room")

    def __init__(self, loops: int = MAX_LOOPS, room: int = MAX_OUTPUT) -> None:
        self._loops = loops
        self._room = room

    def counted(self, iterable: Iterable[Any]) -> Iterator[Any]:
        """Yields the same items and counts them. Raises Overrun."""
        for item in iterable:
            self._loops -= 1
            if self._loops < 0:
                raise Overrun(f"its loops go round more than {MAX_LOOPS:,} times")
            yield item

    def written(self, size: int) -> None:
        """Counts characters of output. Raises Overrun."""
        self._room -= size
        if self._room < 0:
            raise Overrun(f"it would be longer than {MAX_OUTPUT:,} characters")


class Text:
    """One compiled text. Stateless; safe from many threads."""

    __slots__ = ("_source", "_template", "names")

    def __init__(self, source: str, template: Template, names: frozenset[str]) -> None:
        self._source = source
        self._template = template
        self.names = names
        """The variables it reads."""

    def render(self, values: Mapping[str, Any]) -> str:
        """Returns the text with its values (of `bound`). Raises Overrun, Broken."""
        budget: Budget = values[_BUDGET]
        pieces = []
        try:
            for piece in self._template.generate(values):
                budget.written(len(piece))
                pieces.append(piece)
        except Overrun:
            raise
        except Exception as exc:
            raise Broken(_explained(exc, self._source)) from exc
        return "".join(pieces)


def bound(values: Mapping[str, Any], budget: Budget | None = None) -> dict[str, Any]:
    """Returns the variables of one rendering, with the budget that all of its parts share."""
    return {**values, _BUDGET: budget or Budget()}


def compiled(source: str, *, html: bool, chat: bool = False) -> Text | str:
    """Returns the compiled text; the text itself if there is nothing to fill in. Raises Unfit. `chat`
    disables mentions in values (`without_mentions`)."""
    if "{{" not in source and "{%" not in source and "{#" not in source:
        return source
    dialect = _HTML if html else _CHAT if chat else _PLAIN
    try:
        tree = dialect.parse(source)
        _check(tree)
        names = frozenset(meta.find_undeclared_variables(tree)) - dialect.globals.keys()
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, "counted", [], [], None, None, lineno=loop.lineno)
        code = dialect.compile(tree)
    except TemplateSyntaxError as exc:
        raise Unfit(exc.message or "is no template", exc.lineno) from exc
    return Text(source, Template.from_code(dialect, code, {**dialect.globals}), names)


def _check(tree: nodes.Template) -> None:
    """Raises Unfit for Jinja that is not in this dialect."""
    for node in tree.find_all(nodes.Node):
        if (word := _BANNED.get(type(node))) is not None:
            raise Unfit(f"{word!r} is not taken in templates", node.lineno)
        if isinstance(node, nodes.For) and node.recursive:
            raise Unfit("a loop must not be recursive", node.lineno)
        if isinstance(node, nodes.Call) and not _callable(node.node):
            raise Unfit("only range() and methods of tables and dates are called", node.lineno)


def _callable(node: nodes.Expr) -> bool:
    if isinstance(node, nodes.Getattr):
        return node.attr in _METHODS
    return isinstance(node, nodes.Name) and node.name == "range"


class _Dialect(ImmutableSandboxedEnvironment):
    """The sandbox with the filters and globals of this dialect."""

    intercepted_binops = frozenset({"*"})

    def __init__(self, *, html: bool, chat: bool = False) -> None:
        super().__init__(
            autoescape=html,
            undefined=StrictUndefined,
            finalize=_shown_in_chat if chat else _shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.globals = {"range": self.globals["range"]}
        self.filters = {name: self.filters[name] for name in _FILTERS}
        self.filters |= {"counted": _counted, "date": _date, "fixed": _fixed}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Bounds the product of a text or list and a number. Raises Overrun."""
        for many, times in ((left, right), (right, left)):
            repeated = isinstance(many, str | list | tuple) and isinstance(times, int)
            if repeated and len(many) * times > MAX_OUTPUT:
                raise Overrun(f"it would be longer than {MAX_OUTPUT:,} characters")
        return super().call_binop(context, operator, left, right)


@pass_context
def _counted(context: Context, iterable: Iterable[Any]) -> Iterator[Any]:
    budget: Budget = context[_BUDGET]
    return budget.counted(iterable)


def _date(value: date, form: str = "%Y-%m-%d") -> str:
    """`{{ day | date("%d.%m.%Y") }}`."""
    return value.strftime(form)


def _fixed(value: float, digits: int = 2, group: str = "") -> str:
    """`{{ 1234.005 | fixed(2, ",") }}` is 1,234.01: as money is rounded, half away from zero."""
    if not 0 <= digits <= _MAX_DIGITS:
        raise SecurityError(f"fixed: 0 to {_MAX_DIGITS} digits")
    exact = Decimal(str(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{exact:,f}".replace(",", group)


def _shown(value: Any) -> Any:
    """Returns a value as it prints without a filter; an empty text for a missing optional one."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(" ", "minutes")
    return value


def _shown_in_chat(value: Any) -> Any:
    """As `_shown`, without mentions: only the template's own words may mention members."""
    return without_mentions(str(_shown(value)))


def without_mentions(text: str) -> str:
    """Returns the text with a zero-width space in each `<at` and `<@`: tags by which Feishu and WeCom
    mention members, or all (`<at user_id="all">`). Neither documents an escape for them in texts. A last
    `<` gets one, too: the next value may complete the tag."""
    return _MENTION.sub("<\u200b", text)


def _explained(exc: Exception, source: str) -> str:
    line = next((n for file, n in _frames(exc) if file == "<template>"), 0)
    where = f"line {line}: " if line else ""
    if isinstance(exc, UndefinedError | SecurityError):
        message = exc.message or ""
        # A name that the template does not hold came from a value: `{{ table[code] }}`.
        named = (name for name in _QUOTED.findall(message) if not name.endswith(" object"))
        if all(name in source for name in named):
            return f"{where}{message}"
    return f"{where}a value does not fit here ({type(exc).__name__})"


def _frames(exc: Exception) -> list[tuple[str, int]]:
    """Returns file and line of each frame, the innermost first."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(exc.__traceback__)]
    return frames[::-1]


_MENTION: Final = re.compile(r"<(?=/?(?:at\b|@)|$)", re.IGNORECASE)
_PLAIN: Final = _Dialect(html=False)
_CHAT: Final = _Dialect(html=False, chat=True)
_HTML: Final = _Dialect(html=True)
