"""Campaigns: a crowd file, a template and a schedule, sent as a job that survives kill -9.

contract            states, moves and values
crowd_file          the file: fingerprint, reading from a place on
crowd_rows          rows of CSV and JSON lines
crowd_names         names of columns, and the number of rows
row_ids             ids that follow from campaign, run and row
notifications       from a row to a notification
row_checks          checks of rows, as `hongyan send` checks
schedule            due times: once, or cron, in a time zone
checkpoint          the rows up to which everything is settled
sending_pace        rate and hours
store               campaigns in the ledger's database
run_store           runs, checkpoints and bad rows
line_numbers        line numbers of bad rows as a short text
repeated_receivers  receivers that a run has met before
topic_tail          records of a run that a killed process left in Kafka
run_lease           one process at a time sends a campaign
row_publisher       publishes rows, and again those that Kafka did not take
run_sender          sends one run
run_opening         makes the parts of one run's sender
runner              looks for due campaigns, and starts their runs
telemetry           metrics and log lines
actions             a person's actions
creation            a new campaign: looks through its file
bad_row_lines       bad rows as CSV
process             the process of `hongyan campaign run`
"""
