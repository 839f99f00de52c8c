"""Every claim of the library, audited."""
