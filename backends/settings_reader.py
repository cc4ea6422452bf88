"""Reads hongyan.toml and the environment into one tree; collects every problem with its place."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, get_args, get_type_hints

import msgspec

from backends.durations import number_hint
from backends.environment import (
    ACCOUNTS,
    KeyPath,
    meant_by,
    path_of,
    value_of,
    variable_of,
    variables,
)
from backends.literal_secrets import ALLOWING, literals, mark, unmark
from backends.problems import Problem, SettingsError
from backends.toml_lines import key_lines, line_of
from backends.toml_text import TomlTrouble, did_you_mean, parsed

S = TypeVar("S", bound=msgspec.Struct)
_FILE: Final = "_file"
_PATHS: Final = frozenset({"ca_file", "oidc_ca_file"})
"""Keys that hold a path and end like a reference to a secret."""
_NO_KEYS: Final = frozenset({"base", "origins"})
"""Fields of Settings that are no keys of the file."""


class SettingsReader(Generic[S]):
    """One reading of a file and an environment. Later steps go on after a problem of an earlier one."""

    def __init__(self, schema: type[S], file: Path | None, environ: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        self.data: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        """The place that gave each table and key: `hongyan.toml:12`, or a variable."""
        self._schema = schema
        self._file = file
        self._environ = environ
        self._lines: dict[KeyPath, int] = {}
        self._base = file.parent if file else Path()

    def read(self, keys: Collection[KeyPath], logins: Collection[KeyPath]) -> S:
        """Returns the settings. `keys` hold secrets; `logins` hold URLs that may have a password. Raises
        SettingsError."""
        self._read_file()
        in_file = [self._problem(path, text) for path, text in literals(self.data, keys, logins)]
        mark(self.data)
        self._apply_environment()
        if self.data.get(ALLOWING) in (True, "true", "1"):
            unmark(self.data)
        else:
            self.problems += in_file
        self._read_references(self.data, ())
        settings = self._converted()
        if settings is None:
            raise SettingsError(*sorted(set(self.problems), key=_rank))
        return settings

    def _read_file(self) -> None:
        if self._file is None:
            return
        text = ""
        try:
            text = self._file.read_text("utf-8")
            self.data = parsed(text)
            self._lines = key_lines(text)
        except UnicodeDecodeError:
            self.problems.append(Problem(str(self._file), 1, "", "is not UTF-8"))
        except OSError as exc:
            problem = Problem(str(self._file), 0, "", str(exc.strerror or exc))
            self.problems.append(problem)
        except TomlTrouble as exc:
            line = exc.line or (line_of(key_lines(text), exc.path) if exc.path else 0)
            self.problems.append(Problem(str(self._file), line, "", str(exc)))
        self.origins = {
            ".".join(path): f"{self._file}:{line}" for path, line in self._lines.items()
        }

    def _apply_environment(self) -> None:
        made = set(self.data.get(ACCOUNTS, {})) if isinstance(self.data.get(ACCOUNTS), dict) else ()
        for variable in variables(self._environ):
            path = path_of(variable, self.data, self._schema)
            if isinstance(path, Problem):
                self.problems.append(path)
                continue
            table = self._table_for(path)
            if table is None:
                outer = ".".join(path[:-1])
                self.problems.append(
                    Problem(variable.name, 0, outer, "is a value, and not a table; name its key")
                )
                continue
            key = path[-1]
            table.pop(key.removesuffix(_FILE) if key.endswith(_FILE) else f"{key}{_FILE}", None)
            table[key] = value_of(variable.text, path, self._schema)
            self.origins[".".join(path)] = variable.name
        self._check_made(made)

    def _table_for(self, path: KeyPath) -> dict[str, Any] | None:
        """Returns the table around the key at `path`, new ones where they are missing; None: a value is
        in the way."""
        table = self.data
        for part in path[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                return None
        return None if isinstance(table.get(path[-1]), dict) else table

    def _check_made(self, of_file: Collection[str]) -> None:
        """Reports accounts that only variables name and that have no provider: their name is mistyped."""
        accounts = self.data.get(ACCOUNTS)
        if not isinstance(accounts, dict):
            return
        for name, table in list(accounts.items()):
            if name in of_file or not isinstance(table, dict) or "provider" in table:
                continue
            del accounts[name]
            hint = did_you_mean(name, of_file) or f"; add [accounts.{name}] to the file"
            head = variable_of((ACCOUNTS, name, ""))
            given = next((v for v in sorted(self._environ) if v.startswith(head)), head)
            text = f"there is no account of this name{hint}"
            self.problems.append(Problem(given, 0, f"accounts.{name}", text))

    def _read_references(self, table: dict[str, Any], path: KeyPath) -> None:
        """Replaces every `KEY_file = path` by KEY with that file's text, at any depth."""
        for key, value in list(table.items()):
            where = (*path, key)
            if isinstance(value, dict):
                self._read_references(value, where)
            elif key in _PATHS and isinstance(value, str) and value:
                table[key] = str(self._base / value)
            elif key.endswith(_FILE) and key not in _PATHS and isinstance(value, str):
                del table[key]
                self._read_reference(table, where, value)

    def _read_reference(self, table: dict[str, Any], path: KeyPath, named: str) -> None:
        file, key = self._base / named, path[-1].removesuffix(_FILE)
        if key in table:
            self.problems.append(self._problem(path, f"is given beside {key}; keep one of the two"))
            return
        try:
            text = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "is not UTF-8"
            self.problems.append(self._problem(path, f"{file}: {reason}"))
            return
        if not text:
            self.problems.append(self._problem(path, f"{file}: is empty"))
            return
        table[key] = value_of(text, (*path[:-1], key), self._schema)
        self.origins[".".join((*path[:-1], key))] = f"{self._place(path)} ({file})"

    def _converted(self) -> S | None:
        """Returns the settings; None if there are problems, which are reported."""
        hints = get_type_hints(self._schema)
        self._check_account_tables()
        for key in list(self.data):
            if key not in hints or key in _NO_KEYS:
                self._report_unknown((key,), set(hints) - _NO_KEYS, _home_of(key, hints))
                del self.data[key]
            elif hasattr(hints[key], "__struct_fields__"):
                self._convert_table(key, hints[key])
            else:
                self._fits((), key, self.data[key], self._schema)
        if self.problems:
            return None
        return msgspec.convert(self.data, self._schema, strict=False)

    def _check_account_tables(self) -> None:
        for tables in ((ACCOUNTS,), ("receipts", ACCOUNTS)):
            accounts: Any = self.data
            for table in tables:
                accounts = accounts.get(table) if isinstance(accounts, dict) else None
            for name, table in list(accounts.items()) if isinstance(accounts, dict) else ():
                if not isinstance(table, dict):
                    header = ".".join((*tables, "NAME"))
                    self.problems.append(
                        self._problem((*tables, name), f"must be a table: [{header}]")
                    )
                    del accounts[name]

    def _convert_table(self, name: str, struct: type[msgspec.Struct]) -> None:
        table = self.data[name]
        if not isinstance(table, dict):
            self.problems.append(self._problem((name,), f"must be a table: [{name}]"))
            return
        for key, value in table.items():
            if key in struct.__struct_fields__:
                self._fits((name,), key, value, struct)
            else:
                self._report_unknown((name, key), struct.__struct_fields__)

    def _fits(self, table: KeyPath, key: str, value: Any, struct: type[msgspec.Struct]) -> None:
        """Reports a value of a wrong type or out of range."""
        try:
            msgspec.convert({key: value}, struct, strict=False)
        except msgspec.ValidationError as exc:
            text, _, where = str(exc).partition(" - at `$.")
            shown = ".".join((*table, where.rstrip("`") or key))
            text = text.replace("`", "") + number_hint(key, value) + _choices(struct, key, text)
            problem = self._problem((*table, key), f"{text[:1].lower()}{text[1:]}")
            self.problems.append(msgspec.structs.replace(problem, key=shown))
        except (OverflowError, RecursionError, ValueError) as exc:
            self.problems.append(self._problem((*table, key), f"is out of all bounds ({exc})"))

    def _report_unknown(self, path: KeyPath, known: Collection[str], home: str = "") -> None:
        place = self._place(path)
        meant = ""
        if place in self._environ:
            meant = meant_by(place, {}, self._schema)
        hint = f"; did you mean {meant}?" if meant else home or did_you_mean(path[-1], known)
        self.problems.append(self._problem(path, f"unknown key{hint}"))

    def _place(self, path: KeyPath) -> str:
        """Returns the origin of the key, else of the table around it, else of the first key in it."""
        key = ".".join(path)
        inner = (place for one, place in self.origins.items() if one.startswith(f"{key}."))
        return origin_of(self.origins, key) or next(inner, str(self._file or "the settings"))

    def _problem(self, path: KeyPath, text: str) -> Problem:
        key, place = ".".join(path), self._place(path)
        if self._file is None or not place.startswith(str(self._file)):
            return Problem(place, 0, key, text)
        return Problem(str(self._file), line_of(self._lines, path), key, text)


def origin_of(origins: Mapping[str, str], key: str) -> str:
    """Returns the place that gave the key, else the nearest table around it; empty: none did."""
    while key and key not in origins:
        key = key.rpartition(".")[0]
    return origins.get(key, "")


def _home_of(key: str, hints: Mapping[str, Any]) -> str:
    """Returns `; it belongs in [kafka]` for a key of tables that was given outside of any."""
    homes = [name for name, one in hints.items() if key in getattr(one, "__struct_fields__", ())]
    return f"; it belongs in {' or '.join(f'[{name}]' for name in homes)}" if homes else ""


def _choices(struct: type, key: str, text: str) -> str:
    """Returns `; write one of …` for a value that is none of a key's choices."""
    if not text.startswith("Invalid enum value"):
        return ""
    return f"; write one of {', '.join(map(str, get_args(get_type_hints(struct)[key])))}"


def _rank(problem: Problem) -> tuple[bool, str, int, str]:
    """The file's problems come first, by line."""
    return (not problem.line, problem.file, problem.line, problem.key)
