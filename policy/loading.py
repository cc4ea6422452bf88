"""policy.toml: what it may say, and every mistake in it with file, line and key (docs/policy.md).

A lane's policy is its kind's built-in defaults, then `[defaults]`, then `[defaults.KIND]`, then
`[lanes."CHANNEL.KIND"]`; each may set any field.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from backends.settings import Settings
from message.vocabulary import CHANNELS, KINDS, LANES, Lane, lane_named
from policy.lines import key_lines, line_of
from policy.schema import DEFAULTS_BY_KIND, Guarantee, LanePolicy, Ordering, Policy

DEFAULT_FILE: Final = "policy.toml"
_DIGEST = 12
_FIELDS: Final = frozenset(LanePolicy.__struct_fields__)
_CHOICES: Final[Mapping[str, type[Guarantee] | type[Ordering]]] = {
    "guarantee": Guarantee,
    "ordering": Ordering,
}
_TOP: Final = ("defaults", "lanes")
_LANE_NAMES: Final = tuple(lane.name for lane in LANES)

Place = tuple[str, ...]
Layer = dict[str, tuple[Any, Place]]
"""Fields of one table: value and where it stands."""


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
                self._report((key,), f"unknown table{_did_you_mean(key, _TOP)}")

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
                    ("lanes", name), f"no such lane{_did_you_mean(name, _LANE_NAMES) or known}"
                )

    def _layer(self, path: Place, table: Any) -> Layer:
        """The fields that one table sets, each with its place; wrong ones are reported and left out."""
        if not isinstance(table, dict):
            self._report(path, "must be a table")
            return {}
        layer: Layer = {}
        for key, value in table.items():
            place = (*path, key)
            if key not in _FIELDS:
                self._report(place, f"unknown key{_did_you_mean(key, _FIELDS)}")
            elif (problem := self._wrong(key, value)) is not None:
                self._report(place, problem)
            else:
                layer[key] = (value, place)
        return layer

    def _wrong(self, key: str, value: Any) -> str | None:
        """What is wrong with one value by itself; None: nothing."""
        if key in _CHOICES and value not in list(_CHOICES[key]):
            possible = [str(choice) for choice in _CHOICES[key]]
            return f"{value!r} is none of {', '.join(possible)}{_did_you_mean(value, possible)}"
        try:
            msgspec.convert({key: value}, LanePolicy)
        except msgspec.ValidationError as exc:
            return _plain(exc, value)
        return self._wrong_accounts(value) if key == "accounts" else None

    def _wrong_accounts(self, names: list[str]) -> str | None:
        if len(set(names)) < len(names):
            return "names an account twice; name each once"
        unknown = [n for n in names if self._accounts is not None and n not in self._accounts]
        if not unknown:
            return None
        hint = _did_you_mean(unknown[0], self._accounts or ())
        return (
            f"account {unknown[0]!r} is not in hongyan.toml{hint or '; add [accounts.NAME] there'}"
        )

    def _merged(self, lane: Lane, layer: Layer) -> LanePolicy:
        values = msgspec.to_builtins(DEFAULTS_BY_KIND[lane.kind])
        values.update({key: value for key, (value, _) in layer.items()})
        policy = msgspec.convert(values, LanePolicy)
        for key, text in contradictions(policy):
            place = layer[key][1] if key in layer else ("lanes", lane.name, key)
            self._report(place, text)
        return policy

    def _report(self, path: Place, text: str) -> None:
        line = line_of(self._lines, path)
        self.problems.append(Problem(self._file, line, _dotted(path), text))


def contradictions(policy: LanePolicy) -> Iterator[tuple[str, str]]:
    """Fields that are right by themselves and wrong together: (key to change, what is wrong)."""
    p = policy
    if p.ttl_ms > p.max_ttl_ms:
        yield "ttl_ms", f"{p.ttl_ms} is above max_ttl_ms {p.max_ttl_ms}; lower it, or raise that"
    if p.timeout_ms >= p.ttl_ms:
        yield (
            "timeout_ms",
            f"{p.timeout_ms} is not below ttl_ms {p.ttl_ms}: no call could end in time",
        )
    if p.max_in_flight < p.threads:
        yield (
            "max_in_flight",
            f"{p.max_in_flight} is below threads {p.threads}, some of which would never work",
        )
    if p.ordering is Ordering.KEY and p.guarantee is Guarantee.BEST_EFFORT:
        yield "ordering", 'by key needs the ledger, which guarantee "best_effort" does without'


def _plain(exc: msgspec.ValidationError, value: object) -> str:
    """`expected int, got str` out of msgspec's "Expected `int`, got `str` - at `$.threads`"."""
    text = str(exc).partition(" - at ")[0].replace("`", "").replace(" | null", "")
    found = "" if ", got " in text else f", got {value!r}"
    return text[:1].lower() + text[1:] + found


def _did_you_mean(found: object, known: Iterable[str]) -> str:
    close = get_close_matches(str(found), sorted(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _dotted(path: Place) -> str:
    return ".".join(f'"{part}"' if "." in part else part for part in path)


def _line_in(exc: tomllib.TOMLDecodeError) -> int:
    found = re.search(r"at line (\d+)", str(exc))
    return int(found[1]) if found else 1
