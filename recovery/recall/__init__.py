"""Taking messages back."""
