"""This tree's worker beside another tree's, in turns: what a change costs.

    git worktree add ../before COMMIT && make -C ../before venv
    hongyan bench turns ../before [--rounds 10] [--json]

Both trees read the same topic, on the same servers, through the same provider; each run has a process, a
group and a database of its own, which its own tree migrates. Runs alternate, and the order within a round
too. Figures are compared round by round, and the report has the medians of the rounds' ratios: a machine
whose host slows down for a minute slows both. The bare loop is this tree's.

A share of the bare loop may be lower than the other tree's by 0.02. The other tree needs a `.venv/` and the
command `python -m benchmarks.loops LOOP WARM SPAN`.
"""

from __future__ import annotations

import statistics
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from benchmarks.ground import (
    LANE,
    Servers,
    empty_database,
    environment_for,
    preloaded,
    provider_at,
)
from benchmarks.loops import THREADS
from benchmarks.meter import Stretch
from benchmarks.worker import POLICY, PRELOADED, Variant
from deploy.local.layout import REPOSITORY

ROUNDS: Final = 10
ALLOWED: Final = 0.02
"""By which a ratio may be lower."""
BARE: Final = Variant("bare_loop_10ms", "bare_http", "fast", span=12_000)
COMPARED: Final = (
    Variant("at_least_once_10ms", "worker", "fast", span=12_000),
    Variant("best_effort_10ms", "worker", "fast", "best_effort", span=12_000),
    Variant("full_path_null", "worker", "none", span=24_000),
)
_TIMEOUT_S: Final = 180
_ACCOUNTS: Final = """
[accounts.fast]
provider = "webhook"
endpoint = "{url}/send"
[accounts.none]
provider = "null"
endpoint = "http://127.0.0.1:9"
"""


class Compared(msgspec.Struct, frozen=True):
    """One variant of both trees, each figure a median over the rounds."""

    variant: str
    before: float
    """Messages a second in the other tree."""
    after: float
    rate: float
    """After ÷ before, round by round."""
    cpu: float
    """CPU of a message, after ÷ before, round by round."""
    share_before: float
    """Of the bare loop's rate in the same round."""
    share_after: float

    @property
    def holds(self) -> bool:
        """Whether the share is lower by no more than what is allowed."""
        return self.share_after >= self.share_before - ALLOWED


class Turns:
    """Runs variants of both trees against one topic and one provider."""

    def __init__(self, servers: Servers, prefix: str, folder: Path) -> None:
        """`folder` holds hongyan.toml."""
        self._servers, self._prefix, self._folder = servers, prefix, folder

    def run(self, tree: Path, variant: Variant) -> Stretch:
        """Returns one run of the variant by the tree's own code. Raises CalledProcessError."""
        name = f"b{uuid.uuid4().hex[:12]}"
        policy = self._folder / f"{name}.toml"
        policy.write_text(
            POLICY.format(
                lane=LANE.name,
                guarantee=variant.guarantee,
                threads=THREADS,
                account=variant.account,
            )
        )
        with empty_database(self._servers.database_url, name) as url:
            environment = environment_for(self._servers, self._prefix, name, url, policy)
            environment["BENCH_ACCOUNT"] = variant.account
            _done(tree, [".venv/bin/hongyan", "db", "upgrade"], environment)
            loop = [".venv/bin/python", "-m", "benchmarks.loops", variant.loop]
            printed = _done(tree, [*loop, str(variant.warm), str(variant.span)], environment)
        return msgspec.json.decode(printed.splitlines()[-1], type=Stretch)


def measure(
    servers: Servers, other: Path, *, rounds: int = ROUNDS, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Returns each variant of both trees, compared; a first round is not counted. Raises FileNotFoundError
    for a tree that has no `.venv/`."""
    if not (other / ".venv/bin/hongyan").exists():
        raise FileNotFoundError(f"{other} has no .venv/: run `make venv` there")
    runs: dict[tuple[str, str], list[Stretch]] = {}
    with (
        TemporaryDirectory() as name,
        preloaded(servers, PRELOADED) as prefix,
        provider_at(Path(name), "fast", latency_ms="10") as provider,
    ):
        folder = Path(name)
        (folder / "hongyan.toml").write_text(_ACCOUNTS.format(url=provider.url))
        turns = Turns(servers, prefix, folder)
        for number in range(rounds + 1):
            for tree, variant in _order(number, other):
                found = turns.run(tree, variant)
                if number:
                    runs.setdefault((_side(tree, other), variant.name), []).append(found)
                title = f"round {number}/{rounds}" if number else "not counted"
                cpu = f"{found.cpu_us_per_message:>7.1f} µs CPU each"
                line = f"{found.per_second:>9,.0f} messages/s  {cpu}"
                say(f"{title:12} {_side(tree, other):7} {variant.name:20} {line}")
    return report([compared(one.name, runs) for one in COMPARED])


def report(found: Sequence[Compared]) -> dict[str, Any]:
    """Returns what `hongyan bench` prints."""
    medians = {one.variant: msgspec.to_builtins(one) for one in found}
    for row in medians.values():
        del row["variant"]
    ratios = [
        {
            "ratio": f"{one.variant} / bare loop",
            "median": one.share_after,
            "wanted": round(one.share_before - ALLOWED, 3),
            "holds": one.holds,
        }
        for one in found
    ]
    return {"medians": medians, "ratios": ratios}


def compared(variant: str, runs: Mapping[tuple[str, str], Sequence[Stretch]]) -> Compared:
    """Returns the medians of what the rounds' ratios are."""
    before, after, bare = runs["before", variant], runs["after", variant], runs["after", BARE.name]
    pairs = list(zip(before, after, bare, strict=True))
    return Compared(
        variant=variant,
        before=statistics.median(one.per_second for one in before),
        after=statistics.median(one.per_second for one in after),
        rate=_median(a.per_second / b.per_second for b, a, _ in pairs),
        cpu=_median(a.cpu_us_per_message / b.cpu_us_per_message for b, a, _ in pairs),
        share_before=_median(b.per_second / loop.per_second for b, _, loop in pairs),
        share_after=_median(a.per_second / loop.per_second for _, a, loop in pairs),
    )


def _order(number: int, other: Path) -> Iterator[tuple[Path, Variant]]:
    """Each variant of both trees, now the one first and now the other; the bare loop between."""
    trees = [other, REPOSITORY] if number % 2 else [REPOSITORY, other]
    for variant in COMPARED:
        yield from ((tree, variant) for tree in trees)
    yield REPOSITORY, BARE


def _side(tree: Path, other: Path) -> str:
    return "before" if tree == other else "after"


def _median(values: Iterator[float]) -> float:
    return round(statistics.median(values), 3)


def _done(tree: Path, command: Sequence[str], environment: Mapping[str, str]) -> bytes:
    """Returns what a program of the tree prints. Raises CalledProcessError."""
    done = subprocess.run(
        [str(tree / command[0]), *command[1:]],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        timeout=_TIMEOUT_S,
        check=True,
    )
    return done.stdout
