"""Privacy risks of robust models."""
