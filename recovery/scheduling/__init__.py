"""Who calls recovery's jobs: Celery, or the loop built in."""
