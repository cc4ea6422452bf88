"""WeCom: an application, and robots."""
