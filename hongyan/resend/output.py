"""Output of `hongyan resend`: each delivery as it is done, then the sums."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import typer

from hongyan.terminal import PROBLEMS, err, out

if TYPE_CHECKING:
    from recovery.operator_results import OperatorResult

_SHOWN: Final = 50
"""Deliveries shown to people; programs get all."""
_BAD: Final = ("refused", "overtaken")


class ResendOutput:
    """One run's output."""

    def __init__(self, *, as_json: bool, heading: dict[str, Any]) -> None:
        """`heading` has the first fields of the JSON object."""
        self._as_json = as_json
        self._sums: Counter[str] = Counter()
        self._heading = f'{_json(heading)[:-1]}, "deliveries": [' if as_json else ""
        """Written with the first delivery or the end: an earlier failure prints no result."""

    @property
    def total(self) -> int:
        """Deliveries counted so far."""
        return self._sums.total()

    def take(self, some: Sequence[OperatorResult]) -> None:
        """Shows and counts them."""
        for one in some:
            if self._as_json:
                sys.stdout.write(f"{', ' if self.total else self._heading}{_json(one)}")
            elif self.total < _SHOWN:
                _show(one)
            self._sums[one.verdict.value] += 1
        if not self._as_json and self.total > _SHOWN and sys.stderr.isatty():
            err().print(f"{self.total:,} …")

    def end(self, job: str, *, found: bool, more: bool, dry_run: bool) -> None:
        """Prints the sums. Exits 1 if a name was not found, one was refused or more match.
        `job` is empty unless copies were made."""
        if self._as_json:
            begun = "" if self.total else self._heading
            print(f'{begun}], "counts": {_json(dict(self._sums))}, "more": {_json(more)}}}')
        else:
            sums = ", ".join(f"{count:,} {verdict}" for verdict, count in self._sums.items())
            would = " (dry run: nothing was changed)" if dry_run else ""
            out().print(f"{sums or 'nothing found'}{would}{f'  job {job}' if job else ''}")
        if more:
            again = f" with --job {job}" if job else ""
            err().print(f"--limit is reached and more match: run it again{again}")
        if not found or more or any(self._sums[bad] for bad in _BAD):
            raise typer.Exit(PROBLEMS)


def _json(value: Any) -> str:
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)


def _show(result: OperatorResult) -> None:
    from rich.text import Text

    verdict = result.verdict.value
    style = "yellow" if verdict in (*_BAD, "held") else "green"
    rest = [result.delivery_key, result.lane, result.state]
    rest += [f"→ {result.new_id}"] if result.new_id else []
    rest += [result.detail] if result.detail else []
    out().print(Text.assemble((f"{verdict:<9} ", style), "  ".join(rest)))
