"""A run as plain functions: train, evaluate, infer, audit."""
