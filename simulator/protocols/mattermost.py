"""Mattermost's incoming webhooks: the address, the body, a word as answer, errors with an id.

Mentions are read as the server reads them: Slack's `<!channel>` and `<@id>` first become names. Then every
`@name` counts unless a letter or digit precedes it. A text that is too long becomes several posts.

Sources, read 2026-11-22: https://github.com/mattermost/mattermost, server/channels/app/webhook.go and
slack.go.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from simulator.protocols._chat import HookProtocol, plain, texts
from simulator.protocols._json import json_object
from simulator.servers.http_request import Request
from simulator.wire import ReceivedCall, Reply, Verdict

_HOOK: Final = "web.incoming_webhook"
_STATUS: Final = {
    f"{_HOOK}.channel.app_error": 404,
    "app.channel.get.existing.app_error": 404,
    **dict.fromkeys(
        (
            f"{_HOOK}.channel_locked.app_error",
            f"{_HOOK}.permissions.app_error",
            f"{_HOOK}.user.app_error",
            "api.post.create_post.town_square_read_only",
        ),
        403,
    ),
    f"{_HOOK}.disabled.app_error": 501,
    "app.channel.get.find.app_error": 500,
    "app.post.save.app_error": 500,
}
_SLACKS: Final = re.compile(r"<!(channel|here|all)>|<@([A-Za-z0-9]+)>")
_NAME: Final = re.compile(r"(?<![A-Za-z0-9])@[A-Za-z0-9][A-Za-z0-9._-]*")


class Mattermost(HookProtocol):
    name = "mattermost"
    hook = "hooks/simulator-secret"
    paces = ((10, 1),)
    """A server has no limit until its administrator sets one; then it is this one."""

    def read(self, request: Request, path: str) -> ReceivedCall | Reply:
        """Serves one address."""
        if request.method != "POST" or not self.at_hook(request):
            return self.refuse(f"{_HOOK}.invalid.app_error")
        if self.too_many():
            return self.refuse("429")
        body = json_object(request.body)
        if body is None:
            return self.refuse("model.incoming_hook.parse_data.app_error")
        if not body.get("text") and not body.get("attachments"):
            return self.refuse(f"{_HOOK}.text.app_error")
        return self.send(body, sum(map(_called, texts(body))))

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        """Returns a word."""
        return plain(200, "ok")

    def refuse(self, code: str) -> Reply:
        """Returns the id in a JSON object; over the limit a word."""
        if code == "429":
            return plain(429, "limit exceeded")
        status = _STATUS.get(code, 400)
        error = {"id": code, "message": f"error {code}", "detailed_error": "", "request_id": "sim"}
        return Reply(msgspec.json.encode({**error, "status_code": status}), status)


def _called(text: str) -> int:
    return len(_NAME.findall(_SLACKS.sub(lambda found: f"@{found[1] or found[2]}", text)))


PROTOCOLS = (Mattermost,)
