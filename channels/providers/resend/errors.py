"""Resend's errors by their names. The status decides for an answer without a name."""

from __future__ import annotations

from typing import Final

from channels.judging.error_table import (
    HOUR,
    MINUTE,
    ErrorRow,
    ErrorTable,
    RowSource,
    documented,
    paced,
    shut_out,
)
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
    (
        *documented(
            _PAGE,
            ErrorRow("invalid_idempotency_key", "rejected", "the key is not 1 to 256 characters"),
            ErrorRow("validation_error", "rejected", "a field is wrong"),
            ErrorRow("missing_required_field", "rejected", "a field is missing"),
            ErrorRow("missing_required_parameter", "rejected", "a parameter is missing"),
            ErrorRow("invalid_parameter", "rejected", "a parameter is no valid value"),
            ErrorRow(
                "invalid_attachment", "rejected", "an attachment has neither content nor path"
            ),
            ErrorRow("not_found", "rejected", "no such template, or no such endpoint"),
            ErrorRow("method_not_allowed", "rejected", "the endpoint does not take this method"),
            shut_out("missing_api_key", "the API key is missing", MINUTE),
            shut_out("restricted_api_key", "the API key may not do this", MINUTE),
            shut_out("invalid_api_key", "the API key is wrong", MINUTE),
            shut_out("suspended_api_key", "the API key is suspended", MINUTE),
            shut_out("invalid_permission", "the access token may not do this", MINUTE),
            paced("rate_limit_exceeded", Limit.ACCOUNT, "too many requests a second", 1_000),
            paced(
                "daily_quota_exceeded",
                Limit.ACCOUNT,
                "the day's quota is used up",
                HOUR,
                account=True,
            ),
            paced(
                "monthly_quota_exceeded",
                Limit.ACCOUNT,
                "the month's quota is used up",
                HOUR,
                account=True,
            ),
            ErrorRow(
                "invalid_idempotent_request",
                "unknown",
                "the key was used for another payload before",
            ),
            ErrorRow(
                "concurrent_idempotent_requests", "unknown", "the first request is still at work"
            ),
            ErrorRow("resource_locked", "unknown", "another request changes the same thing"),
            ErrorRow("application_error", "unknown", "an unexpected error at Resend"),
            ErrorRow("service_unavailable", "unknown", "Resend is not available for the moment"),
        ),
        *documented(
            _NODE,
            ErrorRow("invalid_from_address", "rejected", "the sender is no valid address"),
            ErrorRow("invalid_access", "rejected", "the access level is no valid one"),
            ErrorRow("invalid_region", "rejected", "the region is no valid one"),
            ErrorRow("security_error", "rejected", "a security issue was found with the request"),
            ErrorRow("internal_server_error", "unknown", "an unexpected error at Resend"),
        ),
    )
)
