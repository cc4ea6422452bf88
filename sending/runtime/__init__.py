"""Clock, threads, work queue, lease, health."""
