"""The smallest singular value of gradient noise that input noise pays for."""
