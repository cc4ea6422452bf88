"""One module per command. Each imports its libraries when it runs, so that `--help` is quick."""
