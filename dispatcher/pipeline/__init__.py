"""Stages of a notification: expand, gates, claims, lanes, settle, completion."""
