"""Mail through Resend."""
