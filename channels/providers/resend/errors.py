"""Resend's errors by their names. The status decides for an answer without a name."""

from __future__ import annotations

from typing import Final

from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
from message.outcomes import Limit

_PAGE: Final = RowSource(
    "https://resend.com/docs/api-reference/errors",
    "2026-11-22",
    copy="the page in part; the rest in Resend's own SDK, resend-rs 0.35.1 (src/error.rs)",
)
_NODE: Final = RowSource(
    "https://github.com/resend/resend-node",
    "2026-11-22",
    copy="RESEND_ERROR_CODE_KEY of resend 6.38.0 (npm)",
)

ERRORS: Final = ErrorTable(
    codes.documented(
        _PAGE,
        codes.rejected("invalid_idempotency_key", "the key is not 1 to 256 characters"),
        codes.rejected("validation_error", "a field is wrong"),
        codes.rejected("missing_required_field", "a field is missing"),
        codes.rejected("missing_required_parameter", "a parameter is missing"),
        codes.rejected("invalid_parameter", "a parameter is no valid value"),
        codes.rejected("invalid_attachment", "an attachment has neither content nor path"),
        codes.rejected("not_found", "no such template, or no such endpoint"),
        codes.rejected("method_not_allowed", "the endpoint does not take this method"),
        codes.shut_out("missing_api_key", "the API key is missing", MINUTE),
        codes.shut_out("restricted_api_key", "the API key may not do this", MINUTE),
        codes.shut_out("invalid_api_key", "the API key is wrong", MINUTE),
        codes.shut_out("suspended_api_key", "the API key is suspended", MINUTE),
        codes.shut_out("invalid_permission", "the access token may not do this", MINUTE),
        codes.paced("rate_limit_exceeded", Limit.ACCOUNT, "too many requests a second", 1_000),
        codes.used_up("daily_quota_exceeded", "the day's quota is used up", HOUR),
        codes.used_up("monthly_quota_exceeded", "the month's quota is used up", HOUR),
        codes.unknown("invalid_idempotent_request", "the key was used for another payload before"),
        codes.unknown("concurrent_idempotent_requests", "the first request is still at work"),
        codes.unknown("resource_locked", "another request changes the same thing"),
        codes.unknown("application_error", "an unexpected error at Resend"),
        codes.unknown("service_unavailable", "Resend is not available for the moment"),
    ),
    codes.documented(
        _NODE,
        codes.rejected("invalid_from_address", "the sender is no valid address"),
        codes.rejected("invalid_access", "the access level is no valid one"),
        codes.rejected("invalid_region", "the region is no valid one"),
        codes.rejected("security_error", "a security issue was found with the request"),
        codes.unknown("internal_server_error", "an unexpected error at Resend"),
    ),
)
