"""One run of `hongyan dead replay`: through all letters of the topic, a batch at a time."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from hongyan.terminal import err, out

if TYPE_CHECKING:
    from sending.dead_letters.reader import DeadLetter
    from sending.dead_letters.replay import ReplayResult

_SHOWN: Final = 50
"""Letters shown to people; programs get all."""
_SAID_EVERY: Final = 100
"""Letters between two lines of progress."""
_HEADING: Final = '{"letters": ['


class ReplayRun:
    """Counts and shows each letter's fate; keeps no letter longer than its batch."""

    def __init__(
        self,
        plan: Callable[[Sequence[DeadLetter]], list[ReplayResult]],
        send: Callable[[Sequence[DeadLetter]], list[ReplayResult]] | None,
        *,
        limit: int | None,
        as_json: bool,
    ) -> None:
        """`plan` and `send` are `Replayer.plan` and `Replayer.run`; `send` is None in a dry run."""
        self.matched = 0
        self.left = 0
        """Letters that match and could be sent, beyond the limit."""
        self.fates: Counter[str] = Counter()
        self._plan = plan
        self._send = send
        self._limit = limit
        self._as_json = as_json

    def through(self, letters: Iterable[DeadLetter]) -> None:
        """Sends the letters, or shows the plan. A failure before the first letter prints no result."""
        from sending.dead_letters.batches import batches

        for batch in batches(letters):
            self.matched += len(batch)
            for one in self._done(batch):
                self._show(one)
                self.fates[one.fate.value] += 1
        if self._as_json:
            begun = "" if self.fates.total() else _HEADING
            print(f"{begun}], {json.dumps(self._sums())[1:]}")
        else:
            self._say_sums()

    def _done(self, batch: Sequence[DeadLetter]) -> list[ReplayResult]:
        """Returns the results of a batch; counts letters beyond the limit in `left` instead."""
        from sending.dead_letters.replay import ReplayStatus

        planned = self._plan(batch)
        going = [one.letter for one in planned if one.fate is ReplayStatus.WOULD]
        if self._limit is not None:
            used = self.fates[ReplayStatus.REPLAYED.value] + self.fates[ReplayStatus.FAILED.value]
            used += self.fates[ReplayStatus.WOULD.value]
            room = max(self._limit - used, 0)
            self.left += len(going[room:])
            going = going[:room]
        chosen = {id(letter) for letter in going}
        sent = {id(one.letter): one for one in self._send(going)} if self._send and going else {}
        return [
            sent.get(id(one.letter), one)
            for one in planned
            if one.fate is not ReplayStatus.WOULD or id(one.letter) in chosen
        ]

    def _sums(self) -> dict[str, Any]:
        sums = {"matched": self.matched, **dict(self.fates), "left": self.left}
        return sums | {"dry_run": self._send is None}

    def _show(self, one: ReplayResult) -> None:
        number = self.fates.total()
        if self._as_json:
            fate = {"origin": one.letter.origin, "target": one.target, "fate": one.fate.value}
            sys.stdout.write(f"{', ' if number else _HEADING}{json.dumps(fate | {'why': one.why})}")
        elif number < _SHOWN:
            line = f"{one.fate:<16} {one.letter.origin} → {one.target} {one.why}"
            out().print(line.rstrip(), markup=False)
        elif number % _SAID_EVERY == 0 and sys.stderr.isatty():
            err().print(f"{number:,} …")

    def _say_sums(self) -> None:
        sums = [f"{count:,} {fate}" for fate, count in self.fates.items()]
        sums += [f"{self.left:,} left, since --limit is reached"] if self.left else []
        out().print(f"{self.matched:,} match: {', '.join(sums)}" if sums else "no letter matches")
        if self._send is None:
            err().print("nothing was sent: this was a dry run; give --yes")
