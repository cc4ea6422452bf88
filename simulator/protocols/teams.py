"""A workflow of Microsoft Teams: the address with its `sig`, one Adaptive Card, 202 and a run's id.

Source, read 2026-11-22:
https://learn.microsoft.com/en-us/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from simulator.protocols._chat import HookProtocol
from simulator.protocols._json import json_object
from simulator.servers.http_request import Request
from simulator.wire import ReceivedCall, Reply, Verdict

_STATUS: Final = {
    **dict.fromkeys(("WorkflowNotFound", "WorkflowTriggerNotFound"), 404),
    **dict.fromkeys(("DirectApiAuthorizationRequired", "MisMatchingOAuthClaims"), 401),
    "AuthorizationFailed": 403,
    "RequestEntityTooLarge": 413,
    "429": 429,
    "InternalServerError": 500,
    "NoResponse": 502,
}
_CARD: Final = "application/vnd.microsoft.card.adaptive"
_MAX_BYTES: Final = 28 * 1_024


class Teams(HookProtocol):
    name = "teams"
    hook = "workflows/0a1b/triggers/manual/paths/invoke?api-version=2016-06-01&sig=simulator-secret"
    paces = ((4, 1),)

    def read(self, request: Request, path: str) -> ReceivedCall | Reply:
        """Serves one address; without its `sig` the refusal says so."""
        if not self.at_hook(request):
            signed = b"sig=" in request.target
            known = path.startswith("/" + self.hook.partition("?")[0])
            code = "AuthorizationFailed" if signed else "DirectApiAuthorizationRequired"
            return self.refuse(code if known else "WorkflowNotFound")
        if self.too_many():
            return self.refuse("429")
        if len(request.body) > _MAX_BYTES:
            return self.refuse("RequestEntityTooLarge")
        body = json_object(request.body)
        card = _card(body) if body is not None else None
        if body is None or card is None:
            return self.refuse("TriggerInputSchemaMismatch")
        return self.send(body, len(card.get("msteams", {}).get("entities", [])))

    def provider_id(self, seq: int) -> str:
        """Returns an id in the provider's form."""
        return f"0858{seq:016d}CU01"

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        """Returns the id of the run that began."""
        return Reply(b"", 202, [("x-ms-workflow-run-id", verdict.provider_id)])

    def refuse(self, code: str) -> Reply:
        """Returns an error of Logic Apps."""
        status = _STATUS.get(code, 400)
        more = [("Retry-After", "10")] if status == 429 else []
        error = {"error": {"code": code, "message": f"error {code}"}}
        return Reply(msgspec.json.encode(error), status, more)


def _card(body: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the Adaptive Card of the message; None if it has none."""
    attachments = body.get("attachments")
    if body.get("type") != "message" or not isinstance(attachments, list) or not attachments:
        return None
    first = attachments[0]
    if not isinstance(first, dict) or first.get("contentType") != _CARD:
        return None
    card = first.get("content")
    return card if isinstance(card, dict) and card.get("type") == "AdaptiveCard" else None


PROTOCOLS = (Teams,)
