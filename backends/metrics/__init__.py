"""Metrics: `families` (one description), `shared_families`, `worker_families`, `recovery_families`,
`receipts_families`, `gateway_families` (the table), `catalogue` (all of it), `buckets`, `instruments` and
`batch_histogram` (counted as things happen), `readings` (asked at a scrape), `process_info` and
`docs_page`."""
