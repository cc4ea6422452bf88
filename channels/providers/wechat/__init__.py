"""WeChat: official accounts and mini programs."""
