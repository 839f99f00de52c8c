"""The papers' networks as plain Keras models."""
