"""How the time of each regular expression of the product grows with its input; run as a program.

Every pattern is a module's constant. The texts are made from its own parse tree: what leads up to each
repeat, then many of what the repeat takes, then an end that does not fit. It prints each pattern before it
is tried, since one of exponential cost is ended by the limit of CPU time, and prints `GROWS` and the
pattern where four times the text costs more than eight times the CPU time.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import resource
from collections.abc import Iterator
from functools import partial
from time import perf_counter, process_time
from typing import Any, NamedTuple

# By name: no stub has them.
ops: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")

PACKAGES = (
    *("backends", "channels", "dispatcher", "hongyan", "idempotency"),
    *("hongyan_client", "lookback", "producer"),
    *("message", "policy", "receipts", "recovery", "sending", "simulator", "tracing"),
)
USES = ("fullmatch", "match", "search", "sub", "findall", "finditer")
CPU_S = 120
SIZES = (32, 128, 1_024, 8_192)
WHOLE = 1 << 20
NOTICED_S = 0.004
"""At the sizes above one pass takes less; what takes longer is looked at with care."""
MEASURED_S = 0.04
LOOKS = 4
"""A busy host gives a process less for its CPU time; it does not do so every time."""
MANY = 16
"""A repeat bounded below this is no matter of growth."""
ENDS = ("", "\x00", "\n", "a")
COMMON = (
    "a",
    "0",
    " ",
    "a ",
    "a.",
    "'",
    '"',
    "<",
    "@",
    "a@",
    "\\",
    "/",
    "://",
    "?",
    "&a",
    "[",
    "\n",
)


class Made(NamedTuple):
    """A text that may be as long as is wanted."""

    before: str
    one: str
    end: str

    def text(self, size: int) -> str:
        return self.before + self.one * (size // len(self.one)) + self.end

    def __str__(self) -> str:
        return f"{self.before!r} + {self.one!r} * n + {self.end!r}"


def modules() -> Iterator[Any]:
    for name in PACKAGES:
        package = importlib.import_module(name)
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            if ".migrations" not in found.name and not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def patterns() -> dict[str, tuple[re.Pattern[Any], list[str]]]:
    """Of every product module, by where it stands, and how it is used there."""
    found: dict[str, tuple[re.Pattern[Any], list[str]]] = {}
    for module in modules():
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                source = inspect.getsource(module)
                uses = [use for use in USES if f"{name}.{use}" in source]
                found.setdefault(f"{module.__name__}.{name}", (value, uses or list(USES[:4])))
    return found


def examples(items: Any) -> Iterator[str]:
    """One character for each kind that a set takes."""
    for op, value in items:
        if op is ops.LITERAL:
            yield chr(value)
        elif op is ops.RANGE:
            yield chr(value[0])
            yield chr(value[1])
        elif op is ops.CATEGORY:
            yield {ops.CATEGORY_DIGIT: "7", ops.CATEGORY_SPACE: " "}.get(value, "w")
        elif op is ops.NEGATE:
            taken = re.compile("[a-z0-9 .:@'\"<>-]")
            yield from (c for c in "x7 .:@'\"<>-" if taken.match(c))


def witness(tree: Any) -> str:
    """A short text that the tree takes, or nearly."""
    return "".join(next(iter(singles(node)), "") for node in tree)


def singles(node: Any) -> Iterator[str]:
    """Texts that one node takes."""
    op, value = node
    if op is ops.LITERAL:
        yield chr(value)
    elif op in (ops.ANY, ops.NOT_LITERAL):
        yield "x"
        yield " "
    elif op is ops.IN:
        yield from dict.fromkeys(examples(value))
    elif op is ops.SUBPATTERN:
        yield witness(value[-1])
    elif op is ops.BRANCH:
        yield from (witness(branch) for branch in value[1])
    elif op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
        least, _, body = value
        yield witness(body) * max(least, 1)
    elif op is ops.ATOMIC_GROUP:
        yield witness(value)


def repeats(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """(what leads there, what is taken again and again) for every repeat worth it."""
    for node in tree:
        op, value = node
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
            _, most, body = value
            if most >= MANY:
                yield from ((before, one) for part in body for one in singles(part) if one)
                yield before, witness(body)
            yield from repeats(body, before)
        elif op is ops.SUBPATTERN:
            yield from repeats(value[-1], before)
        elif op is ops.BRANCH:
            for branch in value[1]:
                yield from repeats(branch, before)
        elif op is ops.ATOMIC_GROUP:
            yield from repeats(value, before)
        before += next(iter(singles(node)), "")


def texts(pattern: re.Pattern[Any]) -> list[Made]:
    """To try."""
    source = pattern.pattern
    source = source.decode("latin-1") if isinstance(source, bytes) else source
    tree = parser.parse(source, pattern.flags & ~re.UNICODE)
    seeds = {*repeats(tree), *(("", one) for one in COMMON)}
    seeds |= {("", before + one) for before, one in repeats(tree)}
    return [Made(before, one, end) for before, one in sorted(seeds) if one for end in ENDS]


def seconds(pattern: re.Pattern[Any], use: str, text: str) -> float:
    """By the wall's clock, which is fine enough for a first look."""
    subject: Any = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
    call = partial(pattern.sub, pattern.pattern[:0]) if use == "sub" else getattr(pattern, use)
    begun = perf_counter()
    call(subject)
    return perf_counter() - begun


def cpu_seconds(pattern: re.Pattern[Any], use: str, text: str) -> float:
    """Other processes do not count; the clock's steps are milliseconds."""
    begun = process_time()
    seconds(pattern, use, text)
    return process_time() - begun


def steeper(pattern: re.Pattern[Any], use: str, made: Made, size: int) -> str:
    """Whether four times the text costs more than twice its share of CPU time, at a size that can be
    measured; empty where 1 MiB takes less than that."""
    while cpu_seconds(pattern, use, made.text(size)) < MEASURED_S:
        if size >= WHOLE:
            return ""
        size *= 2
    seen = ""
    for _ in range(LOOKS):
        once = cpu_seconds(pattern, use, made.text(size))
        four = cpu_seconds(pattern, use, made.text(4 * size))
        if four <= 8 * once:
            return ""
        seen = f"{use} of {made}: {once:.3f} s, {four:.3f} s from {size}"
    return seen


def grows(pattern: re.Pattern[Any], use: str) -> str:
    """What makes it super-linear; empty: nothing did."""
    worst = (0.0, Made("", "a", ""))
    for made in texts(pattern):
        spent = 0.0
        for size in SIZES:
            spent = seconds(pattern, use, made.text(size))
            if spent > NOTICED_S:
                if found := steeper(pattern, use, made, size):
                    return found
                break
        worst = max(worst, (spent, made))
    return steeper(pattern, use, worst[1], WHOLE // 4)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    for name, (pattern, uses) in patterns().items():
        print("TRY", name, *uses, flush=True)
        for use in uses:
            if found := grows(pattern, use):
                print("GROWS", name, found, flush=True)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
