"""Flags of the simulator. `hongyan simulator` passes its arguments to `main`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from simulator.faults import BadFaults, Faults
from simulator.options import DEFAULT_LEDGER, Rules, SimulatorOptions
from simulator.receipts.plan import check
from simulator.scenario import BadScenario, load
from simulator.wire import Lists

_EXAMPLES = """examples:
  hongyan simulator                                    accept everything at once
  hongyan simulator --latency p50=20,p99=300 --error 503=0.02 --retry-after 1
  hongyan simulator --reset 0.01 --hang 0.001          accept, then leave the sender in doubt
  hongyan simulator --limit 20/1 --retry-after 1       a provider that takes 20 a second
  hongyan simulator --port 8899 --rules faults.json --report seen.json --seed 7
  hongyan simulator --scenario examples/scenarios/bad-day.toml    all of it from a file

latency:  10 | 5-20 | p50=10,p99=80, in milliseconds
rules:    a JSON list; each may hold path, receiver (prefixes), method, latency_ms, errors
          {"500": 0.1}, retry_after, accept_errors, limit, limit_s, limit_code, reset, close, hang,
          drip, drop, drip_ms
"""
_FLAGS = frozenset(SimulatorOptions.__struct_fields__) - {
    "rules",
    "receipts",
    "behaviours",
    "lists",
    "credentials",
    "fsync",
}
"""Options that a flag of the same name sets."""
_GC_THRESHOLDS = (50_000, 20, 100)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a simulator until SIGTERM. Returns 0, or 1 if it cannot start; exits with 2 for bad flags."""
    parser = _parser()
    flags = parser.parse_args(arguments)
    try:
        options = _options(flags, arguments)
        Rules(options.rules)
        _check_receipts(options)
    except (msgspec.MsgspecError, BadFaults, BadScenario, OSError) as exc:
        parser.error(str(exc))
    try:
        serve(options)
    except ImportError as exc:
        needed = "error: the simulator needs {}, which is not installed; to get it, type: {}"
        print(needed.format(exc.name, "pip install 'hongyan[simulator]'"), file=sys.stderr)
        return 2
    except OSError as exc:
        print(f"The simulator cannot start: {exc}", file=sys.stderr)
        return 1
    return 0


def serve(options: SimulatorOptions) -> None:
    """Runs a simulator in this process until SIGTERM or SIGINT.

    Raises OSError for a port or file that cannot be had, BadFaults for rules that cannot be played."""
    import uvloop  # only the simulator's own process needs it

    from simulator.server import Server

    async def run() -> None:
        await Server(options).run()

    # Everything seen stays in memory, and each collection of cycles would look at all of it.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def _options(flags: argparse.Namespace, arguments: Sequence[str] | None) -> SimulatorOptions:
    if flags.options:
        return msgspec.json.decode(flags.options, type=SimulatorOptions)
    if flags.scenario:
        return _of_scenario(flags, arguments)
    given = {name: value for name, value in vars(flags).items() if name in _FLAGS}
    return SimulatorOptions(
        **given,
        rules=[*_rules_in(flags.rules), _rule_of(flags)],
        lists=Lists(status_query=flags.status_query),
        fsync=not flags.no_fsync,
    )


def _of_scenario(flags: argparse.Namespace, arguments: Sequence[str] | None) -> SimulatorOptions:
    """Returns the file's options, with those of the command line in their place."""
    options = load(flags.scenario)
    unset = argparse.Namespace(**dict.fromkeys(_FLAGS))
    given = vars(_parser().parse_args(arguments, unset))
    changes: dict[str, object] = {name: given[name] for name in _FLAGS if given[name] is not None}
    if flags.no_fsync:
        changes["fsync"] = False
    if flags.status_query:
        changes["lists"] = msgspec.structs.replace(options.lists, status_query=True)
    rules = [*_rules_in(flags.rules), *options.rules, _rule_of(flags)]
    return msgspec.structs.replace(options, **changes, rules=rules)


def _rules_in(path: str) -> list[Faults]:
    return msgspec.json.decode(Path(path).read_bytes(), type=list[Faults]) if path else []


def _check_receipts(options: SimulatorOptions) -> None:
    if options.receipts:
        from simulator.receipts.formats import FORMATS  # loads the protocols

        check(options.receipts, FORMATS)


def _rule_of(flags: argparse.Namespace) -> Faults:
    return msgspec.convert(
        {
            "latency_ms": flags.latency,
            "errors": dict(flags.error),
            "retry_after": flags.retry_after,
            **flags.limit,
            **{name: getattr(flags, name) for name in ("reset", "close", "hang", "drip", "drop")},
        },
        Faults,
    )


def _error(text: str) -> tuple[str, float]:
    status, _, rate = text.partition("=")
    return status, float(rate)


def _limit(text: str) -> dict[str, float]:
    """Returns the fields for `20/1`: twenty requests in any second."""
    count, _, seconds = text.partition("/")
    return {"limit": int(count), "limit_s": float(seconds or 1)}


class _Parser(argparse.ArgumentParser):
    """Prints one sentence for wrong flags, in place of all of them."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see `{self.prog} --help`)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="hongyan simulator",
        description="A provider that speaks the webhook protocol and keeps a ledger of all it saw.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0: any free one, printed at start")
    add("--admin-port", type=int, default=0, help="for /_control and /_report, on loopback")
    add("--smtp-port", type=int, default=-1, help="also a mail server; 0: on any free port")
    add("--smtp-certificate", default="", metavar="PEM", help="key and chain: STARTTLS is required")
    add("--certificate", default="", metavar="PEM", help="key and chain: https in place of http")
    add(
        "--idle-close-ms", type=int, default=0, help="close a connection idle for so long; 0: never"
    )
    add(
        "--close-after",
        type=int,
        default=0,
        help="answers that a connection carries; 0: any number",
    )
    add("--ledger", default=DEFAULT_LEDGER, help="JSON lines, synced before every answer")
    add("--report", default="", metavar="FILE", help="write the report there at exit")
    add("--latency", default="0", metavar="MS")
    add("--error", type=_error, action="append", default=[], metavar="STATUS=RATE")
    add("--retry-after", default="", metavar="VALUE", help="header of error answers")
    limit = "take so many requests in any so many seconds (1), refuse the rest with 429"
    add("--limit", type=_limit, default={}, metavar="COUNT/SECONDS", help=limit)
    for name in ("reset", "close", "hang", "drip"):
        add(f"--{name}", type=float, default=0.0, metavar="RATE", help=f"accept, then {name}")
    add("--drop", type=float, default=0.0, metavar="RATE", help="close without accepting")
    add("--scenario", default="", metavar="FILE", help="TOML; flags take precedence over it")
    add("--rules", default="", metavar="FILE", help="JSON list of rules, before the flags' own")
    add("--seed", default="0", help="the same seed, the same fate for each key")
    add("--dedup", action="store_true", help="accept each Idempotency-Key once")
    status = "webhook protocol: answer the status query; else GET meets a router's 404"
    add("--status-query", action="store_true", help=status)
    add("--no-fsync", action="store_true", help="write, but do not sync; for benchmarks")
    add("--json", action="store_true", help="print the address as JSON")
    add("--options", default="", help=argparse.SUPPRESS)
    return parser
