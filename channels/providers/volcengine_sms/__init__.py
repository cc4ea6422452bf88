"""Volcengine SMS."""
