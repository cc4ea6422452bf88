"""How commands are written: groups, old spellings (command_line), blank options, durations, extras."""
