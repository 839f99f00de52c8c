"""Model files are data: read, checked and rebuilt, never run."""
