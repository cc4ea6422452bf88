"""The HTTP gateway, in the order in which a request meets it.

process · wiring · http_app · openapi · api_keys · key_store · key_ring · rate_limits · request_bodies ·
endpoint · envelope_limits · idempotency · request_store · batch_progress · request_purge · submission ·
story_reader · recall_desk · problems · metrics
"""
