"""Six robust trainers side by side."""
