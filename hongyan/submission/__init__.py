"""Parts of `hongyan send`, in order: notification_file, outcome_wait, output."""
