"""Schedulers of recovery's jobs: Celery, or the built-in loop."""
