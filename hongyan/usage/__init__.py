"""How commands are written: groups and old spellings (command_line), durations, needed extras."""
