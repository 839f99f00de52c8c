"""Norms of layers, from above."""
