"""DingTalk: work notices of an application, and robots."""
