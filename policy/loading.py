"""policy.toml: what it may say, and every mistake in it with file, line and key (docs/policy.md).

A lane's policy is its kind's built-in defaults, then `[defaults]`, then `[defaults.KIND]`, then
`[lanes."CHANNEL.KIND"]`; each may set any field, and any field of its `breaker` and `retry` tables.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from backends.settings import Settings
from message.vocabulary import CHANNELS, KINDS, LANES, Lane, lane_named
from policy.checks import contradictions, did_you_mean, misfit, wrong_weights
from policy.lines import Path as Place
from policy.lines import key_lines, line_of
from policy.schema import (
    DEFAULTS_BY_KIND,
    BreakerPolicy,
    Guarantee,
    LanePolicy,
    Ordering,
    Policy,
    RetryPolicy,
)

DEFAULT_FILE: Final = "policy.toml"
_DIGEST = 12
_FIELDS: Final = frozenset(LanePolicy.__struct_fields__)
_TABLES: Final[Mapping[str, type[BreakerPolicy] | type[RetryPolicy]]] = {
    "breaker": BreakerPolicy,
    "retry": RetryPolicy,
}
_CHOICES: Final[Mapping[str, type[Guarantee] | type[Ordering]]] = {
    "guarantee": Guarantee,
    "ordering": Ordering,
}
_TOP: Final = ("defaults", "lanes")
_LANE_NAMES: Final = tuple(lane.name for lane in LANES)

Layer = dict[Place, tuple[Any, Place]]
"""Fields of one table, `("threads",)` or `("breaker", "share")`: value and where it stands."""


class Problem(msgspec.Struct, frozen=True, order=True):
    """One thing wrong with the file."""

    file: str
    line: int
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key}: {self.text}"


class PolicyError(ValueError):
    """A policy file that cannot be used; says the first problem, and keeps all of them."""

    def __init__(self, problems: list[Problem]) -> None:
        more = (
            f" (and {len(problems) - 1} more; see `hongyan policy check`)" if problems[1:] else ""
        )
        super().__init__(f"{problems[0]}{more}")
        self.problems = problems


def file_of(settings: Settings) -> Path | None:
    """`policy.file`, else policy.toml beside hongyan.toml if it is there, else None."""
    base = Path(settings.base)
    if settings.policy.file:
        return base / settings.policy.file
    default = base / DEFAULT_FILE
    return default if default.is_file() else None


def load_for(settings: Settings) -> Policy:
    """The policy that `settings` names, its accounts checked; raises PolicyError."""
    return load(file_of(settings), settings.accounts)


def load(path: str | Path | None, accounts: Collection[str] | None = None) -> Policy:
    """The policy in `path`, or the defaults for None; raises PolicyError.

    `accounts` are the names that hongyan.toml has; None: they are not checked.
    """
    if path is None:
        return Policy()
    content = _read(Path(path))
    reader = _Reader(str(path), content, accounts)
    lanes = reader.lanes()
    if reader.problems:
        raise PolicyError(sorted(set(reader.problems)))
    return Policy(version=f"file:{sha256(content).hexdigest()[:_DIGEST]}", lanes=lanes)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise PolicyError([Problem(str(path), 1, "policy.file", reason)]) from exc


class _Reader:
    """One file being read; gathers problems instead of stopping at the first."""

    def __init__(self, file: str, content: bytes, accounts: Collection[str] | None) -> None:
        self.problems: list[Problem] = []
        self._file = file
        self._accounts = accounts
        self._lines: dict[tuple[str, ...], int] = {}
        self._data = self._parse(content)

    def lanes(self) -> dict[str, LanePolicy]:
        """Every lane's policy; the fields that have problems are left at their defaults."""
        self._check_top()
        shared = self._table("defaults")
        kinds = {kind: shared.pop(kind) for kind in KINDS if kind in shared}
        defaults = self._layer(("defaults",), shared)
        by_kind = {kind: self._layer(("defaults", kind), kinds.get(kind, {})) for kind in KINDS}
        named = {name: self._layer(("lanes", name), table) for name, table in self._lane_tables()}
        return {
            lane.name: self._merged(
                lane, {**defaults, **by_kind[lane.kind], **named.get(lane.name, {})}
            )
            for lane in LANES
        }

    def _parse(self, content: bytes) -> dict[str, Any]:
        try:
            text = content.decode("utf-8")
            data = tomllib.loads(text)
        except UnicodeDecodeError:
            self.problems.append(Problem(self._file, 1, "the file", "is not UTF-8"))
            return {}
        except tomllib.TOMLDecodeError as exc:
            self.problems.append(Problem(self._file, _line_in(exc), "the file", f"no TOML: {exc}"))
            return {}
        self._lines = key_lines(text)
        return data

    def _check_top(self) -> None:
        for key in self._data:
            if key in _FIELDS:
                self._report((key,), "stands outside of any table; put it under [defaults]")
            elif key not in _TOP:
                self._report((key,), f"unknown table{did_you_mean(key, _TOP)}")

    def _table(self, *path: str) -> dict[str, Any]:
        """A copy of the table at `path`; empty where there is none or something else stands."""
        found: Any = self._data
        for key in path:
            found = found.get(key, {})
        if isinstance(found, dict):
            return dict(found)
        self._report(path, "must be a table")
        return {}

    def _lane_tables(self) -> Iterator[tuple[str, Any]]:
        for name, table in self._table("lanes").items():
            if lane_named(name) is not None:
                yield name, table
            elif name in CHANNELS and isinstance(table, dict):
                kind = next(iter(table), "notice")
                self._report(("lanes", name), f'quote the name: [lanes."{name}.{kind}"]')
            else:
                known = f"; write CHANNEL.KIND, where channel is one of {', '.join(CHANNELS)}"
                self._report(
                    ("lanes", name), f"no such lane{did_you_mean(name, _LANE_NAMES) or known}"
                )

    def _layer(self, path: Place, table: Any) -> Layer:
        """The fields that one table sets, each with its place; wrong ones are reported and left out."""
        if not isinstance(table, dict):
            self._report(path, "must be a table")
            return {}
        layer: Layer = {}
        for key, value in table.items():
            place = (*path, key)
            if key in _TABLES:
                layer |= self._inner(place, value)
            elif key not in _FIELDS:
                self._report(place, f"unknown key{did_you_mean(key, _FIELDS)}")
            elif not self._reported(place, self._wrong(key, value)):
                layer[key,] = (value, place)
        return layer

    def _inner(self, path: Place, table: Any) -> Layer:
        """The fields of a lane's inner table; other layers may set others of them."""
        name = path[-1]
        struct = _TABLES[name]
        if not isinstance(table, dict):
            self._report(path, "must be a table")
            return {}
        layer: Layer = {}
        for key, value in table.items():
            place = (*path, key)
            if key not in struct.__struct_fields__:
                self._report(place, f"unknown key{did_you_mean(key, struct.__struct_fields__)}")
            elif not self._reported(place, misfit(struct, key, value)):
                layer[name, key] = (value, place)
        return layer

    def _reported(self, place: Place, problems: Iterable[tuple[Place, str]]) -> bool:
        """Report what is wrong with the value at `place`, or below it; whether anything was."""
        found = list(problems)
        for below, text in found:
            self._report((*place, *below), text)
        return bool(found)

    def _wrong(self, key: str, value: Any) -> Iterator[tuple[Place, str]]:
        """What is wrong with one value by itself: (where below the key, what)."""
        if key in _CHOICES and value not in list(_CHOICES[key]):
            possible = [str(choice) for choice in _CHOICES[key]]
            hint = did_you_mean(value, possible)
            yield (), f"{value!r} is none of {', '.join(possible)}{hint}"
        elif key == "accounts":
            yield from self._wrong_accounts(value)
        else:
            yield from misfit(LanePolicy, key, value)

    def _wrong_accounts(self, accounts: Any) -> Iterator[tuple[Place, str]]:
        if isinstance(accounts, dict):
            yield from wrong_weights(accounts)
        elif not isinstance(accounts, list):
            yield (), "must be a list of names, or a table of names and weights"
            return
        elif problems := list(misfit(LanePolicy, "accounts", accounts)):
            yield from problems
            return
        elif len(set(accounts)) < len(accounts):
            yield (), "names an account twice; name each once"
        for name in accounts:
            if self._accounts is not None and name not in self._accounts:
                hint = did_you_mean(name, self._accounts) or "; add [accounts.NAME] there"
                below = (name,) if isinstance(accounts, dict) else ()
                yield below, f"account {name!r} is not in hongyan.toml{hint}"

    def _merged(self, lane: Lane, layer: Layer) -> LanePolicy:
        values = msgspec.to_builtins(DEFAULTS_BY_KIND[lane.kind])
        for (*tables, key), (value, _) in layer.items():
            table = values[tables[0]] if tables else values
            table[key] = value
        policy = msgspec.convert(values, LanePolicy)
        for key, text in contradictions(policy):
            path = tuple(key.split("."))
            place = layer[path][1] if path in layer else ("lanes", lane.name, *path)
            self._report(place, text)
        return policy

    def _report(self, path: Place, text: str) -> None:
        line = line_of(self._lines, path)
        self.problems.append(Problem(self._file, line, _dotted(path), text))


def _dotted(path: Place) -> str:
    return ".".join(f'"{part}"' if "." in part else part for part in path)


def _line_in(exc: tomllib.TOMLDecodeError) -> int:
    found = re.search(r"at line (\d+)", str(exc))
    return int(found[1]) if found else 1
