"""Parts of `hongyan send`, in order: notification_file, row_checks, outcome_wait, output."""
