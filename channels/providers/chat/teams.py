"""Microsoft Teams by a workflow: one Adaptive Card into the workflow's chat or channel.

    POST https://<region>.logic.azure.com/workflows/<id>/triggers/manual/paths/invoke?…&sig=<secret>
         {"type": "message", "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive",
                                              "contentUrl": null, "content": {…the card…}}]}
    202  x-ms-workflow-run-id: 0858…             empty body
    400  {"error": {"code": "WorkflowTriggerIsNotEnabled", "message": "…"}}

202 means that a run of the workflow has begun. Only the workflow's run history shows, under the run's id,
whether its step posted the card: a delivery is SENT, never DELIVERED. Any other 2xx is not a workflow's:
Microsoft's retired connectors answered 200 for messages that they did not post.

`text` becomes a card of plain lines, `markdown` one text block; `card` is a whole Adaptive Card. A card
mentions only the names in its `msteams.entities`, which the adapter never writes: `mention` is refused. A
message has at most 28 KB. A trigger for "any user in my tenant" wants OAuth and answers 401: choose
"anyone".

Source, read 2026-11-22:
https://learn.microsoft.com/en-us/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using.
Microsoft has no table of the trigger's codes. Users of such workflows report the codes below. Each came
with a 4xx, which refuses whatever its code is.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

import httpx
import msgspec

from channels.bad_content import BadContent
from channels.capabilities import Capabilities
from channels.channel import Call
from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, ErrorTable
from channels.judging.foreign_json import decoded
from channels.judging.outcomes import refusal
from channels.providers.chat.content import ChatContent, read
from channels.providers.chat.incoming_webhook import LIMITER_STATUS, HookChannel, refused
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Limit, Unknown

_OWN: Final = ("card",)
_CARD: Final = "application/vnd.microsoft.card.adaptive"
_SCHEMA: Final = "http://adaptivecards.io/schemas/adaptive-card.json"
_VERSION: Final = "1.4"
_ACCEPTED: Final = 202
_TOO_MANY: Final = "429"
_PAUSE_MS: Final = 10_000
_RUN_ID: Final = "x-ms-workflow-run-id"
_THEIRS: Final = "x-ms-"
"""The prefix of Microsoft's header fields, which distinguish its empty 202 from a proxy's."""
_ID: Final = re.compile(r"[0-9A-Za-z]{8,64}")

_REPORTED: Final = "users of workflows report it; Microsoft has no table of the trigger's codes"

_ERRORS: Final = ErrorTable(
    codes.unproved(
        LIMITER_STATUS,
        codes.paced(_TOO_MANY, Limit.ACCOUNT, "more runs than the workflow is allowed", _PAUSE_MS),
    ),
    codes.unproved(
        _REPORTED,
        codes.rejected("TriggerInputSchemaMismatch", "the workflow wants another body"),
        codes.rejected("InvalidRequestContent", "the body cannot be read"),
        codes.rejected("RequestEntityTooLarge", "the body is too large"),
        codes.shut_out("WorkflowNotFound", "no such workflow", HOUR),
        codes.shut_out("WorkflowTriggerNotFound", "no such trigger", HOUR),
        codes.shut_out("WorkflowTriggerIsNotEnabled", "the workflow is off or deleted", HOUR),
        codes.shut_out(
            "DirectApiAuthorizationRequired", "no sig, or the trigger is not for anyone", HOUR
        ),
        codes.shut_out("AuthorizationFailed", "the sig is refused", HOUR),
        codes.shut_out("MisMatchingOAuthClaims", "the trigger wants OAuth", HOUR),
        codes.unknown("NoResponse", "the service behind did not answer in time"),
        codes.unknown("InternalServerError", "an error inside"),
    ),
)


class _Error(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Answered(msgspec.Struct):
    error: _Error


_decoder = msgspec.json.Decoder(_Answered)


class TeamsChannel(HookChannel):
    """Stateless."""

    provider: ClassVar[str] = "teams"
    max_bytes: ClassVar[int] = 28 * 1_024
    errors: ClassVar[ErrorTable] = _ERRORS
    promises: ClassVar[Capabilities] = Capabilities(
        title="Microsoft Teams workflow (webhook trigger)",
        limits="one group an account; 28 KB; what the workflow's connector allows",
        source=(
            "https://learn.microsoft.com/en-us/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using",
        ),
    )

    def body(self, delivery: Delivery) -> dict[str, Any]:
        content = read(delivery, self.provider, _OWN)
        if content.mention:
            raise BadContent("bad_content: mention: a card of ours mentions nobody in Teams")
        if content.card is not None and (content.text or content.markdown):
            raise BadContent("bad_content: give card, text or markdown, one of them")
        card = content.card if content.card is not None else _card(content)
        attachment = {"contentType": _CARD, "contentUrl": None, "content": card}
        return {"type": "message", "attachments": [attachment]}

    def outcome(self, call: Call, answer: httpx.Response) -> AnyOutcome:
        """Returns Accepted for Microsoft's 202, else the outcome by the error's code or the status."""
        status = answer.status_code
        if status == _ACCEPTED and any(name.startswith(_THEIRS) for name in answer.headers):
            run = answer.headers.get(_RUN_ID, "")
            return Accepted(run if _ID.fullmatch(run) else call.key)
        if status == int(_TOO_MANY):
            return refused(self.errors, _TOO_MANY, "", answer)
        error = _read(answer)
        if error is None or not error.code:
            return refusal(answer) or Unknown(f"http_{status}", "no answer of a Teams workflow")
        return refused(self.errors, error.code, error.message, answer)


def _card(content: ChatContent) -> dict[str, Any]:
    """Returns a card of plain lines, or of one block of Markdown."""
    body: list[dict[str, Any]]
    if content.text is None:
        body = [{"type": "TextBlock", "text": content.markdown, "wrap": True}]
    else:
        lines = content.text.splitlines() or [content.text]
        body = [{"type": "RichTextBlock", "inlines": [_run(line)]} for line in lines]
    return {"$schema": _SCHEMA, "type": "AdaptiveCard", "version": _VERSION, "body": body}


def _run(line: str) -> dict[str, str]:
    """Returns a TextRun, which is never read as Markdown. A blank keeps the height of an empty line."""
    return {"type": "TextRun", "text": line or " "}


def _read(answer: httpx.Response) -> _Error | None:
    reply = decoded(_decoder.decode, answer.content)
    return None if reply is None else reply.error


CHANNELS = (TeamsChannel(),)
