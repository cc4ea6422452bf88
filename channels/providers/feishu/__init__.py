"""Feishu and Lark: an application, and robots."""
