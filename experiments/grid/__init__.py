"""The engine of resumable cells."""
