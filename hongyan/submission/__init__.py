"""Parts of `hongyan send`, in order: notification_file, template_check, receiver_check, then
outcome_wait and output."""
