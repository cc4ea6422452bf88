"""Reads values from command line flags."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

from typer.core import TyperCommand

from backends.durations import milliseconds
from hongyan.errors import WrongUsage

MOST_ROWS: Final = 1_000_000
"""Most rows that --limit of a list takes."""
MOST_VERSION: Final = 2**31 - 1
"""Highest number of a version of the policy or the templates."""
_LONGEST_S: Final = 86_400


class OptionalValues(TyperCommand):
    """A command whose options with a metavar in brackets may be given without a value, which is then an
    empty text."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the command line."""
        bare = {
            name for one in self.params if (one.metavar or "").startswith("[") for name in one.opts
        }
        return super().parse_args(ctx, [*_with_values(args, bare)])


def _with_values(args: list[str], bare: Collection[str]) -> Iterator[str]:
    for arg, after in pairwise([*args, "--"]):
        yield f"{arg}=" if arg in bare and after.startswith("-") else arg


def given_reason(reason: str, kept_with: str) -> str:
    """Returns the text of --reason without blanks around it. Raises WrongUsage without one; `kept_with`
    says where it stays, as `the job`."""
    if not reason.strip():
        raise WrongUsage(f"give --reason TEXT: it is kept with {kept_with}")
    return reason.strip()


def seconds(flag: str, text: str) -> float:
    """Returns a duration, or a bare number of seconds, in seconds. Raises WrongUsage."""
    try:
        found = milliseconds(text, bare="s") / 1_000
    except ValueError as exc:
        raise WrongUsage(f"{flag} {text!r}: {exc}") from exc
    if not 0 < found <= _LONGEST_S:
        raise WrongUsage(f"{flag} {text!r}: give seconds above 0, and a day at most")
    return found


def duration_ms(flag: str, text: str) -> int:
    """Returns a duration (backends/durations.py) in milliseconds. Raises WrongUsage."""
    try:
        return milliseconds(text)
    except ValueError as exc:
        raise WrongUsage(f"{flag} {text!r}: {exc}") from exc


def age_ms(flag: str, text: str | None) -> int | None:
    """Returns an age (backends/durations.py) in milliseconds; None if it was not given. Raises WrongUsage,
    for an age of 0 too: it selects nothing."""
    if not text:
        return None
    found = duration_ms(flag, text)
    if not found:
        raise WrongUsage(f"{flag} {text!r}: give a time above 0; nothing is as new as that")
    return found


def optional(**fields: Any) -> dict[str, Any]:
    """Returns the fields that were given."""
    return {name: value for name, value in fields.items() if value}


def pairs(flag: str, given: Iterable[str] | None) -> dict[str, str]:
    """Returns texts of `KEY=VALUE` as a table. Raises WrongUsage."""
    table = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise WrongUsage(f"{flag} {text!r}: write KEY=VALUE")
        table[key] = value
    return table


def lane_fields(name: str) -> dict[str, Any]:
    """Returns channel and kind of a lane's name. Raises WrongUsage."""
    from message.vocabulary import lanes_matching

    lane = lanes_matching([name])
    if len(lane) != 1:
        raise WrongUsage(f"--lane {name!r} names {len(lane)} lanes; name one")
    return {"channel": lane[0].channel, "kind": lane[0].kind}


def patterns(given: Iterable[str] | None) -> list[str] | None:
    """Returns the patterns of a repeated, comma-separated option; None if it was not given."""
    if not given:
        return None
    return [part.strip() for text in given for part in text.split(",") if part.strip()]


def body_fields(
    template: str | None, param: Iterable[str] | None, content: str | None
) -> dict[str, Any]:
    """Returns template or content; exactly one must be given. Raises WrongUsage."""
    if (template is None) == (content is None):
        raise WrongUsage("give either --template or --content")
    if template is not None:
        return {"template": {"id": template, "params": pairs("--param", param)}}
    if param:
        raise WrongUsage("--param goes with --template")
    try:
        value = json.loads(content or "")
    except ValueError as exc:
        raise WrongUsage(f"--content is not JSON: {exc}") from exc
    except RecursionError as exc:
        raise WrongUsage("--content is nested too deeply") from exc
    if not isinstance(value, dict):
        raise WrongUsage('--content must be a JSON object, such as {"text": "hello"}')
    return {"content": value}
