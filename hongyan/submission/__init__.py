"""Parts of `hongyan send`, in order: notification_file, template_check, receiver_check, row_checks, then
outcome_wait and output."""
