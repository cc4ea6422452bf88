"""What became of every message: stages and events, the recorder, its sinks, timeline queries."""
