"""Tencent Cloud SMS."""
