"""Codes of refusals before any call: one set has them all, and no provider answers one of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import channels
from channels.registry import PROVIDERS
from message.reasons import ADAPTER_REFUSALS, BY_CODE

ROOT = Path(channels.__file__).parent
REASON = re.compile(r"([a-z][a-z0-9_]*): ")
ANSWERED_TOO = {"no_text"}
"""Slack answers with it; Twilio's adapter refuses with it."""
NO_REFUSALS = {
    *("hook", "status_callback"),  # errors of an account's options
    *("invalid_user", "none", "sent"),  # answers to queries
    *("marketing", "number", "overloaded"),  # meanings in tables of errors
}


def reasons() -> Iterator[str]:
    """Yields the code of each text in the adapters that reads `code: sentence`."""
    files = [
        *(ROOT / "providers").rglob("*.py"),
        ROOT / "bad_content.py",
        ROOT / "accounts/reach.py",
    ]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            found = REASON.match(node.value) if _is_text(node) else None  # type: ignore[attr-defined]
            if found:
                yield found[1]


def _is_text(node: ast.AST) -> bool:
    """Whether it is a text; the parts of an f-string are such, too."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_the_set_has_every_code_with_which_an_adapter_refuses() -> None:
    found = set(reasons()) - NO_REFUSALS - ANSWERED_TOO - BY_CODE.keys()
    assert found | {"adapter_error"} == ADAPTER_REFUSALS


def test_no_provider_answers_a_code_of_the_set() -> None:
    answered = {row.code for adapter in PROVIDERS.values() for row in adapter.errors}
    assert answered & (ADAPTER_REFUSALS | ANSWERED_TOO) == ANSWERED_TOO
