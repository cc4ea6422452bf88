"""Replies of the simulator's mail server, and their commands: pure functions of a message's fate."""

from __future__ import annotations

from email import message_from_bytes, policy
from typing import Final

from simulator.faults import ConnectionEnd, FaultDecision

_STAGES: Final = {
    **dict.fromkeys(("432", "454", "525", "534", "535", "538"), "auth"),
    **dict.fromkeys(("521",), "hello"),
    **dict.fromkeys(("455", "530", "555"), "mail"),
}
"""The stage of a code that names none; any other belongs to the final dot."""
_CODE: Final = 3
"""Digits of a reply's code (RFC 5321 §4.2)."""
BEFORE_MAIL: Final = ("hello", "auth")
BEFORE_RCPT: Final = (*BEFORE_MAIL, "mail")
"""Stages with draws of their own: a later draw leaves them out."""
_NEEDED: Final = ("Date", "From", "Message-ID")


def read_letter(content: bytes) -> tuple[str, str]:
    """Returns the Message-ID and the fault of the message; one of them is empty."""
    if b"\n" in content.replace(b"\r\n", b""):
        return "", "a line ends in LF alone"
    if not content.isascii():
        return "", "8 bit content in a message that was not announced as such"
    message = message_from_bytes(content, policy=policy.default)
    missing = [name for name in _NEEDED if len(message.get_all(name, [])) != 1]
    if missing:
        return "", f"{missing[0]} must stand once"
    if message.defects or any(part.defects for part in message.walk()):
        return "", "the message is not well formed"
    return str(message["Message-ID"]).strip("<> "), ""


def staged(fate: FaultDecision | None) -> tuple[str, str]:
    """Returns stage and code of a fate; both empty if it has no code."""
    if fate is None or not fate.code:
        return "", ""
    stage, _, code = fate.code.partition(":")
    if stage.isalpha():
        return stage, code
    return _STAGES.get(fate.code[:_CODE], "final"), fate.code


def answer_of(fate: FaultDecision) -> str:
    """Returns the answer to the final dot, as the ledger records it."""
    if fate.ending is not ConnectionEnd.ANSWER:
        return fate.ending.value
    stage, code = staged(fate)
    if stage == "final":
        return code[:_CODE]
    return "250" if fate.status == 200 else str(fate.status)


def to_dot(fate: FaultDecision, answer: str) -> str:
    """Returns the reply to the final dot."""
    stage, code = staged(fate)
    return worded(code if stage == "final" else answer)


def worded(code: str) -> str:
    """Returns the reply of a code; a whole reply stays as it is."""
    if len(code) > _CODE:
        return code
    return f"{code} {code[:1]}.0.0 " + ("OK" if code.startswith("2") else "refused by a rule")
