"""Slack's incoming webhooks: the address, the body, 50 blocks, a word as answer, no id.

Mentions are read as Slack reads them: `<!channel>`, `<@U…>` and `<!subteam^…>` in any text that is no
`plain_text`, and the broadcast, user and usergroup elements of rich text.

Source: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
"""

from __future__ import annotations

import re
from typing import Any, Final

from simulator.protocols._chat import HookProtocol, plain, texts
from simulator.protocols._json import json_object
from simulator.servers.http_request import Request
from simulator.wire import ReceivedCall, Reply, Verdict

_STATUS: Final = {
    **dict.fromkeys(("channel_not_found", "no_service", "no_service_id", "no_team"), 404),
    "no_active_hooks": 404,
    **dict.fromkeys(("action_prohibited", "invalid_token", "team_disabled"), 403),
    "posting_to_general_channel_denied": 403,
    "channel_is_archived": 410,
    "rate_limited": 429,
    "rollup_error": 500,
}
_MENTION: Final = re.compile(
    r"<(?:!(?:channel|here|everyone|subteam\^S[A-Z0-9]+)|@[UW][A-Z0-9]+)[|>]"
)
_CALLING: Final = frozenset({"broadcast", "user", "usergroup"})
_MAX_BLOCKS: Final = 50


class Slack(HookProtocol):
    name = "slack"
    hook = "services/T000/B000/simulator-secret"
    paces = ((1, 1),)

    def read(self, request: Request, path: str) -> ReceivedCall | Reply:
        """Serves one address."""
        if request.method != "POST" or not self.at_hook(request):
            return self.refuse("no_service")
        if self.too_many():
            return self.refuse("rate_limited")
        body = json_object(request.body)
        if body is None or not isinstance(body.get("text", ""), str):
            return self.refuse("invalid_payload")
        blocks = body.get("blocks", [])
        if not isinstance(blocks, list) or len(blocks) > _MAX_BLOCKS:
            return self.refuse("invalid_blocks")
        if not (body.get("text") or blocks or body.get("attachments")):
            return self.refuse("no_text")
        return self.send(body, _mentions(body))

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        """Returns a word."""
        return plain(200, "ok")

    def refuse(self, code: str) -> Reply:
        """Returns an error whose body is the code."""
        more = [("Retry-After", "1")] if code == "rate_limited" else []
        return plain(_STATUS.get(code, 400), code, *more)


def _mentions(tree: Any) -> int:
    if isinstance(tree, dict):
        if tree.get("type") == "plain_text":
            return 0
        return int(tree.get("type") in _CALLING) + sum(map(_mentions, tree.values()))
    if isinstance(tree, list):
        return sum(map(_mentions, tree))
    return sum(len(_MENTION.findall(text)) for text in texts(tree))


PROTOCOLS = (Slack,)
