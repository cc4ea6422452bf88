"""This tree's worker beside another tree's, in turns: what a change costs.

    git worktree add ../before COMMIT && make -C ../before venv
    python -m benchmarks.turns ../before [--rounds 10] [--json]

Both trees read the same topic, on the same servers, through the same provider; each run has a process, a
group and a database of its own, which its own tree migrates. Runs alternate, and the order within a round
too. Figures are compared round by round, and the medians of the rounds' ratios are told: a machine whose
host slows down for a minute slows both. The bare loop is this tree's.

Exits 1 if a share of the bare loop is lower than the other tree's by more than 0.02. The other tree needs a
`.venv/` and the command `python -m benchmarks.loops LOOP WARM SPAN`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import msgspec
import psycopg

from benchmarks.ground import Servers, environment_for, preloaded, provider_at
from benchmarks.loops import THREADS
from benchmarks.worker import POLICY, PRELOADED, Variant
from deploy.local.layout import REPOSITORY
from deploy.local.stack import shared_stack
from message.vocabulary import Lane

LANE: Final = Lane("webhook", "notice")
ALLOWED: Final = 0.02
"""By which a ratio may be lower."""
BARE: Final = Variant("bare_loop_10ms", "bare_http", "fast", span=12_000)
COMPARED: Final = (
    Variant("at_least_once_10ms", "worker", "fast", span=12_000),
    Variant("best_effort_10ms", "worker", "fast", "best_effort", span=12_000),
    Variant("full_path_null", "worker", "none", span=24_000),
)
_TIMEOUT_S: Final = 180
_REDIS_DATABASE: Final = 63
"""It is emptied afterwards."""
_ACCOUNTS: Final = """
[accounts.fast]
provider = "webhook"
endpoint = "{url}/send"
[accounts.none]
provider = "null"
endpoint = "http://127.0.0.1:9"
"""


class Measured(NamedTuple):
    """One run."""

    per_second: float
    cpu_us: float


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

    def run(self, tree: Path, variant: Variant) -> Measured:
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
        with _database(self._servers.database_url, name) as url:
            environment = environment_for(self._servers, self._prefix, name, url, policy)
            environment["BENCH_ACCOUNT"] = variant.account
            _done(tree, [".venv/bin/hongyan", "db", "upgrade"], environment)
            loop = [".venv/bin/python", "-m", "benchmarks.loops", variant.loop]
            told = _done(tree, [*loop, str(variant.warm), str(variant.span)], environment)
        found = json.loads(told.splitlines()[-1])
        return Measured(found["per_second"], found["cpu_us_per_message"])


def measure(servers: Servers, other: Path, rounds: int) -> list[Compared]:
    """Returns each variant of both trees, compared. A first round is not counted."""
    runs: dict[tuple[str, str], list[Measured]] = {}
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
                line = f"{found.per_second:>9,.0f} messages/s  {found.cpu_us:>7.1f} µs CPU each"
                print(
                    f"{title:12} {_side(tree, other):7} {variant.name:20} {line}", file=sys.stderr
                )
    return [compared(one.name, runs) for one in COMPARED]


def compared(variant: str, runs: Mapping[tuple[str, str], Sequence[Measured]]) -> Compared:
    """Returns the medians of what the rounds' ratios are."""
    before, after, bare = runs["before", variant], runs["after", variant], runs["after", BARE.name]
    pairs = list(zip(before, after, bare, strict=True))
    return Compared(
        variant=variant,
        before=statistics.median(one.per_second for one in before),
        after=statistics.median(one.per_second for one in after),
        rate=_median(a.per_second / b.per_second for b, a, _ in pairs),
        cpu=_median(a.cpu_us / b.cpu_us for b, a, _ in pairs),
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


@contextmanager
def _database(base_url: str, name: str) -> Iterator[str]:
    """An empty database, dropped at the end."""
    with psycopg.connect(base_url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
        try:
            yield f"{base_url.rpartition('/')[0]}/{name}"
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _servers() -> Servers:
    stack = shared_stack(lambda line: print(line, file=sys.stderr))
    stack.up()
    redis_url = f"{stack.redis_url.rpartition('/')[0]}/{_REDIS_DATABASE}"
    return Servers(stack.bootstrap, stack.database_url, redis_url)


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path, help="the other tree, with a .venv/ of its own")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Prints one line a variant; returns 1 if a share is lower than allowed, 2 for a tree that is none."""
    given = _arguments()
    tree = given.tree.resolve()
    if not (tree / ".venv/bin/python").exists():
        print(f"{tree} has no .venv/: run `make venv` there", file=sys.stderr)
        return 2
    found = measure(_servers(), tree, given.rounds)
    if given.json:
        print(json.dumps([msgspec.to_builtins(one) | {"holds": one.holds} for one in found]))
    else:
        for one in found:
            print(
                f"{one.variant:20} {one.before:>7,.0f} → {one.after:>7,.0f} messages/s, ×{one.rate:.3f};"
                f" CPU ×{one.cpu:.3f}; of the bare loop {one.share_before:.3f} → {one.share_after:.3f}"
            )
    return 0 if all(one.holds for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
