"""What the simulator's mail server says, and at which command: pure functions of a message's fate."""

from __future__ import annotations

from email import message_from_bytes, policy
from typing import Final

from simulator.faults import ConnectionEnd, FaultDecision

_STAGES: Final = {
    **dict.fromkeys(("432", "454", "525", "534", "535", "538"), "auth"),
    **dict.fromkeys(("521",), "hello"),
    **dict.fromkeys(("455", "530", "555"), "mail"),
}
"""Where a code belongs that names no stage; all others: the final dot."""
_CODE: Final = 3
"""Digits of a reply's code (RFC 5321 §4.2)."""
BEFORE_MAIL: Final = ("hello", "auth")
BEFORE_RCPT: Final = (*BEFORE_MAIL, "mail")
"""Stages with draws of their own: what falls on them later has had its chance."""
_NEEDED: Final = ("Date", "From", "Message-ID")


def read_letter(content: bytes) -> tuple[str, str]:
    """The Message-ID, and what is wrong with the message."""
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
    """Stage and code of a fate; empty where it is none of a code."""
    if fate is None or not fate.code:
        return "", ""
    stage, _, code = fate.code.partition(":")
    if stage.isalpha():
        return stage, code
    return _STAGES.get(fate.code[:_CODE], "final"), fate.code


def answer_of(fate: FaultDecision) -> str:
    """How the final dot is answered, as the ledger tells it."""
    if fate.ending is not ConnectionEnd.ANSWER:
        return fate.ending.value
    stage, code = staged(fate)
    if stage == "final":
        return code[:_CODE]
    return "250" if fate.status == 200 else str(fate.status)


def to_dot(fate: FaultDecision, answer: str) -> str:
    """The reply to the final dot."""
    stage, code = staged(fate)
    return worded(code if stage == "final" else answer)


def worded(code: str) -> str:
    """The reply; what has words already stays as it is."""
    if len(code) > _CODE:
        return code
    return f"{code} {code[:1]}.0.0 " + ("OK" if code.startswith("2") else "refused by a rule")
