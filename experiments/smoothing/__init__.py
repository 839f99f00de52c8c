"""Private and certified: the study of smoothing."""
