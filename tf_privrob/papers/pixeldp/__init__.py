"""PixelDP: a noise layer with a certificate."""
