"""An answer to a request for an access token: a refused login is told from a refusal that passes.

GeTui's and the mail servers' stand with their own tests.
"""

import json
from typing import Any

import httpx
import pytest

from channels.channel import LoginRefused, TokenRefused
from channels.registry import PROVIDERS

LOGINS = [
    ("wechat_official", 200, {"errcode": 40125, "errmsg": "invalid appsecret"}),
    ("wechat_official", 200, {"errcode": 40013, "errmsg": "invalid appid"}),
    ("wechat_mini", 200, {"errcode": 40164, "errmsg": "invalid ip, not in whitelist"}),
    ("wecom", 200, {"errcode": 40001, "errmsg": "invalid credential"}),
    ("wecom", 200, {"errcode": 60020, "errmsg": "not allow to access from your ip"}),
    ("dingtalk", 200, {"errcode": 40089, "errmsg": "不合法的corpid或corpsecret"}),
    ("dingtalk", 200, {"errcode": 88, "sub_code": "60020", "sub_msg": "访问ip不在白名单之中"}),
    ("feishu", 200, {"code": 10003, "msg": "invalid param"}),
    ("feishu", 200, {"code": 10014, "msg": "app secret invalid"}),
    ("fcm", 400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}),
    ("fcm", 401, {"error": "invalid_client"}),
]
PASSING = [
    ("wechat_official", 200, {"errcode": -1, "errmsg": "system busy"}),
    ("wechat_official", 200, {"errcode": 45009, "errmsg": "reach max api daily quota limit"}),
    ("wechat_mini", 200, {"errcode": 45011, "errmsg": "api minute-quota reach limit"}),
    ("wecom", 200, {"errcode": 45033, "errmsg": "api concurrent out of limit"}),
    ("wecom", 502, {"errcode": 40001}),
    ("dingtalk", 200, {"errcode": -1, "errmsg": "系统繁忙"}),
    ("dingtalk", 200, {"errcode": 90018, "errmsg": "too many calls"}),
    ("feishu", 429, {"code": 99991400, "msg": "request trigger frequency limit"}),
    ("feishu", 500, {"code": 10014, "msg": "internal"}),
    ("feishu", 400, {"code": 5000, "msg": "internal error"}),
    ("feishu", 400, {"code": 1000004, "msg": "method rate limited"}),
    ("fcm", 503, {"error": "temporarily_unavailable"}),
    ("fcm", 500, {"error": "invalid_grant"}),
]


def refusal(provider: str, status: int, said: dict[str, Any]) -> TokenRefused:
    tokens = PROVIDERS[provider].tokens
    assert tokens is not None
    with pytest.raises(TokenRefused) as refused:
        tokens.read(httpx.Response(status, content=json.dumps(said).encode()))
    return refused.value


@pytest.mark.parametrize(("provider", "status", "said"), LOGINS)
def test_a_refused_login_is_told_as_one(provider: str, status: int, said: dict[str, Any]) -> None:
    assert isinstance(refusal(provider, status, said), LoginRefused)


@pytest.mark.parametrize(("provider", "status", "said"), PASSING)
def test_a_refusal_that_passes_is_no_refused_login(
    provider: str, status: int, said: dict[str, Any]
) -> None:
    assert not isinstance(refusal(provider, status, said), LoginRefused)


@pytest.mark.parametrize("provider", ["wechat_official", "wechat_mini"])
@pytest.mark.parametrize(
    ("code", "refused"),
    [
        *((code, True) for code in (40001, 40014, 41001, 42001, 42007)),
        *((code, False) for code in (0, 40003, 40125, 43101, 45009)),
    ],
)
def test_wechat_says_in_five_ways_that_a_token_is_missing_or_over(
    provider: str, code: int, refused: bool
) -> None:
    answer = httpx.Response(200, content=json.dumps({"errcode": code}).encode())
    assert PROVIDERS[provider].token_refused(answer) is refused
