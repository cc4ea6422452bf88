"""Resend jobs: rules, a person's actions, the job that runs them, handing over, failures."""
