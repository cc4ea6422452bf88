"""What a business process installs: the typed client, its spool, its outbox and the fenced check."""
