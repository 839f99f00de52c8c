"""Randomised smoothing."""
