"""TransDenoiser: a denoiser in front of a frozen classifier."""
