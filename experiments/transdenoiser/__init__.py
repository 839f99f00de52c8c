"""TransDenoiser's figures."""
