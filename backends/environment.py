"""Variables `HONGYAN_TABLE__KEY` of the environment: which setting each one means.

Every variable that begins with HONGYAN_ must be a setting, one of the program's own, or one that
Kubernetes makes for a Service. Any other is a problem: a setting that nobody reads must not go unseen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, get_args, get_origin, get_type_hints

from backends.problems import Problem
from backends.toml_text import MAX_DEPTH

PREFIX: Final = "HONGYAN_"
CONFIG_VARIABLE: Final = "HONGYAN_CONFIG"
_NOT_SETTINGS: Final = frozenset({CONFIG_VARIABLE, "HONGYAN_DEBUG"})
_OF_TOOLS: Final = ("HONGYAN_REQUIRE_", "HONGYAN_STACK_", "HONGYAN_TEST_", "HONGYAN_BENCH_")
"""Prefixes of variables for this repository's own tests and stack."""
_OF_SERVICES: Final = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)\Z"
)
_NAMED_PORT: Final = "_SERVICE_PORT_"
_SERVICE_PORT: Final = re.compile(r"HONGYAN_(\w+_)?PORT")
_SERVICE_URL: Final = re.compile(r"(tcp|udp|sctp)://\S+")
_ALIKE: Final = 0.9
"""Least likeness of a misspelt variable to the right one."""
_UNSPELT: Final = re.compile(r"[^a-z0-9]")
ACCOUNTS: Final = "accounts"
_NAMED: Final = (
    (ACCOUNTS,),
    ("receipts", ACCOUNTS),
    ("lookback", "biz_types"),
    ("lookback", "checks"),
)
"""Tables of tables that people name."""
_CLIENT: Final = ["kafka", "client"]
"""The table of librdkafka's properties, whose names have dots."""
_SPARK: Final = ["spark", "properties"]
"""The table of Spark's properties, whose names have dots and capitals."""
_WRITE: Final = "a setting is written HONGYAN_TABLE__KEY, with two underscores"

KeyPath = tuple[str, ...]


class EnvironmentVariable:
    """One variable: the path of the setting it gives."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.parts = name[len(PREFIX) :].lower().split("__")
        self.text = text

    def problem(self, text: str) -> Problem:
        """Returns a problem of this variable."""
        name = self.name if len(self.parts) <= MAX_DEPTH else f"{self.name[:40]}…"
        return Problem(name, 0, ".".join(self.parts[:3]), text)


def variables(environ: Mapping[str, str]) -> Iterator[EnvironmentVariable]:
    """Yields the variables that must be settings, by name."""
    for name in sorted(environ):
        if name.startswith(PREFIX) and not _is_foreign(name, environ[name]):
            yield EnvironmentVariable(name, environ[name])


def _is_foreign(name: str, text: str) -> bool:
    """Whether a variable is for the program, its tools, or of a Service that Kubernetes describes."""
    if name in _NOT_SETTINGS or name.startswith(_OF_TOOLS):
        return True
    if "__" in name:
        return False
    if _NAMED_PORT in name or _OF_SERVICES.search(name):
        return True
    return bool(_SERVICE_PORT.fullmatch(name) and _SERVICE_URL.fullmatch(text))


def path_of(
    variable: EnvironmentVariable, data: Mapping[str, Any], schema: type
) -> KeyPath | Problem:
    """Returns the path of the variable's setting in `data`, or the problem of its name."""
    parts = variable.parts
    if len(parts) > MAX_DEPTH:
        return variable.problem(f"is nested deeper than {MAX_DEPTH}")
    if len(parts) == 1 and parts[0] not in top_level_values(schema):
        meant = meant_by(variable.name, data, schema)
        hint = f"did you mean {meant}?" if meant else f"{_WRITE}; rename it if it is for others"
        return Problem(variable.name, 0, "", f"there is no such setting; {hint}")
    for tables in _NAMED:
        if tuple(parts[: len(tables)]) == tables:
            return _path_of_named(variable, tables, data)
    if parts[:2] == _SPARK and len(parts) > 2:
        text = "its names have dots and capitals, which no variable has; write it in the file"
        return Problem(variable.name, 0, ".".join(_SPARK), text)
    if parts[:2] == _CLIENT and len(parts) == 3:
        return (*_CLIENT, parts[2].replace("_", "."))
    return tuple(parts)


def value_of(text: str, path: KeyPath, schema: type) -> str | list[str]:
    """Returns the value that a text from outside the file gives to the setting at this path."""
    if not _is_list(path, schema):
        return text
    return [part.strip() for part in text.split(",") if part.strip()]


def _is_list(path: KeyPath, schema: type) -> bool:
    """Whether the setting at this path is a list of texts."""
    kind: Any = schema
    for part in path:
        if hasattr(kind, "__struct_fields__"):
            kind = get_type_hints(kind).get(part)
        else:
            kind = get_args(kind)[1] if get_origin(kind) is dict else None
    return bool(kind == list[str])


def _path_of_named(
    variable: EnvironmentVariable, tables: KeyPath, data: Mapping[str, Any]
) -> KeyPath | Problem:
    """Finds the table: `main_sms` may mean `main-sms` or `Main.SMS` of the file."""
    name, *key = variable.parts[len(tables) :] or [""]
    if not key:
        meant = meant_by(variable.name, data, None)
        hint = f"did you mean {meant}?" if meant else f"write {variable_of(tables)}__NAME__KEY"
        return Problem(variable.name, 0, "", f"there is no such setting; {hint}")
    others = _names(data, (ACCOUNTS,)) if tables[-1] == ACCOUNTS else []
    known = list(dict.fromkeys([*others, *_names(data, tables)]))
    alike = [one for one in known if spelt(one) == spelt(name)]
    if len(alike) > 1:
        return variable.problem(
            f"may mean {' or '.join(alike)}, which a shell spells alike; rename one, or write"
            f" {key[-1]}_file in its table"
        )
    return (*tables, alike[0] if alike else name, *key)


def spelt(name: str) -> str:
    """Returns a table's name as a variable spells it, in small letters: `main_sms` for `Main-SMS`."""
    return _UNSPELT.sub("_", name.lower())


def variable_of(path: Iterable[str]) -> str:
    """Returns the variable that gives the setting at this path."""
    return PREFIX + "__".join(spelt(part) for part in path).upper()


def top_level_values(schema: type) -> list[str]:
    """Returns the keys of the top level that are no tables."""
    hints = get_type_hints(schema)
    return [name for name, kind in hints.items() if kind in (bool, int, str) and name != "base"]


def meant_by(name: str, data: Mapping[str, Any], schema: type | None) -> str:
    """Returns the setting that a misspelt variable most likely means; empty: none is close. `schema` None:
    only accounts' settings are looked at."""
    bare, file = (name.removesuffix("_FILE"), "_FILE") if name.endswith("_FILE") else (name, "")
    for account in _names(data, (ACCOUNTS,)):
        head = variable_of((ACCOUNTS, account))
        flat = head.replace("__", "_") + "_"
        rest = name.replace("__", "_").removeprefix(flat)
        if name.replace("__", "_").startswith(flat) and rest:
            return f"{head}__{rest}"
    if schema is None:
        return ""
    known = [
        variable_of((table, key))
        for table, of_table in get_type_hints(schema).items()
        for key in getattr(of_table, "__struct_fields__", ())
    ]
    known += [variable_of((key,)) for key in top_level_values(schema)]
    flattened = {one.replace("__", "_"): one for one in sorted(known)}
    close = get_close_matches(bare.replace("__", "_"), flattened, n=1, cutoff=_ALIKE)
    return f"{flattened[close[0]]}{file}" if close else ""


def _names(data: Mapping[str, Any], tables: Iterable[str]) -> list[str]:
    """Returns the names in a table of tables; none where it is missing."""
    around: Any = data
    for table in tables:
        around = around.get(table) if isinstance(around, Mapping) else None
    return list(around) if isinstance(around, Mapping) else []
