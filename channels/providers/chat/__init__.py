"""Slack, Discord, Mattermost and Teams by incoming webhooks."""
