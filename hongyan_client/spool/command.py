"""`hongyan-spool`: looks into a spool, and drains it by hand.

Exit codes: 0 done, 1 problems, 2 a wrong command line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from hongyan_client.errors import ClientError
from hongyan_client.spool.folder import SpoolFolder
from hongyan_client.spool.listing import ended_lines, row_lines, status_of
from hongyan_client.spool.manual_drain import drained_by_hand

DONE, PROBLEMS, USAGE = 0, 1, 2
_ENDED_BY_PIPE: Final = 141
EXAMPLES: Final = """
Examples:
  hongyan-spool status /var/lib/shop/spool
  hongyan-spool list /var/lib/shop/spool --ended --json
  hongyan-spool drain /var/lib/shop/spool --bootstrap kafka-1:9092
  hongyan-spool drain /var/lib/shop/spool --bootstrap kafka-1:9093 --properties client.properties --parked
"""


class WrongCommandLine(Exception):
    """Arguments that name nothing; one sentence says what to write."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The script's entry. Returns the exit code."""
    given = _parser().parse_args(arguments)
    try:
        run: Callable[[argparse.Namespace], int] = given.run
        return run(given)
    except WrongCommandLine as exc:
        return _complain(str(exc), USAGE)
    except ClientError as exc:
        return _complain(str(exc), PROBLEMS)
    except BrokenPipeError:
        return _ENDED_BY_PIPE


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="hongyan-spool",
        description="Records on disk that Kafka did not take yet.",
        epilog=EXAMPLES,
        formatter_class=form,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("status", _status, "Figures and problems. Exits 1 if something needs a person."),
        ("list", _list, "The records that wait, with masked receivers."),
        ("drain", _drain, "Publish what waits. Exits 1 if records are left."),
    ):
        one = commands.add_parser(
            name, help=text, description=text, epilog=EXAMPLES, formatter_class=form
        )
        one.add_argument("folder", type=Path, metavar="FOLDER", help="the spool's folder")
        one.add_argument("--json", action="store_true", help="for programs")
        one.set_defaults(run=run)
    _add_options(commands.choices["list"], commands.choices["drain"])
    return parser


def _add_options(listing: argparse.ArgumentParser, drain: argparse.ArgumentParser) -> None:
    listing.add_argument("--limit", type=_positive, default=50, help="so many (50)")
    listing.add_argument(
        "--ended", action="store_true", help="those that left without reaching Kafka"
    )
    drain.add_argument(
        "--bootstrap", required=True, help="the brokers, as kafka-1:9092,kafka-2:9092"
    )
    drain.add_argument(
        "--properties",
        type=Path,
        metavar="FILE",
        help="properties of librdkafka, one NAME=VALUE a line: TLS, SASL",
    )
    drain.add_argument("--timeout", type=float, default=60.0, help="seconds (60)")
    drain.add_argument("--parked", action="store_true", help="parked records, too")


def _status(given: argparse.Namespace) -> int:
    status = status_of(_folder(given.folder), _now_ms())
    if given.json:
        print(json.dumps(status))
    else:
        for name, value in status.items():
            shown = ", ".join(value) if isinstance(value, list) else value
            print(f"{name.replace('_', ' '):<16} {shown}")
    return PROBLEMS if status["problems"] else DONE


def _list(given: argparse.Namespace) -> int:
    store = _folder(given.folder).store()
    try:
        found = (
            ended_lines(store.ended(given.limit)) if given.ended else row_lines(store, given.limit)
        )
    finally:
        store.close()
    if given.json:
        print(json.dumps(found))
        return DONE
    for one in found:
        print(
            "  ".join(f"{name}={value}" for name, value in one.items() if value not in ("", None))
        )
    return DONE


def _drain(given: argparse.Namespace) -> int:
    folder = _folder(given.folder)
    properties = _properties(given.properties) if given.properties else {}
    result: dict[str, Any] = drained_by_hand(
        folder, given.bootstrap, properties, given.timeout, with_parked=given.parked
    )
    if given.json:
        print(json.dumps(result))
    else:
        print(f"published {result['published']}, left {result['left']}, parked {result['parked']}")
        if result["error"]:
            print(result["error"], file=sys.stderr)
    return PROBLEMS if result["left"] or result["parked"] else DONE


def _folder(path: Path) -> SpoolFolder:
    """Returns an existing spool. Raises WrongCommandLine."""
    if not (path / "spool.db").is_file():
        raise WrongCommandLine(f"there is no spool in {path}: name the folder that the client uses")
    return SpoolFolder(path)


def _properties(path: Path) -> dict[str, str]:
    """Returns the properties of a file. Raises WrongCommandLine."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise WrongCommandLine(f"--properties {path} cannot be read: {exc}") from exc
    found = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not equals:
            raise WrongCommandLine(f"{path}:{number}: write NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return number


def _complain(text: str, code: int) -> int:
    print(f"hongyan-spool: {text}", file=sys.stderr)
    return code


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main())
