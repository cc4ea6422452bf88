"""How commands are written: groups and old spellings (command_line), blank options, durations, needed extras."""
