"""AdLM: the adaptive Laplace mechanism."""
