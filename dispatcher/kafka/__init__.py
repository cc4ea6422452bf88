"""Between Kafka and the pipeline: group member, source, offsets, commits, backpressure, bad records."""
