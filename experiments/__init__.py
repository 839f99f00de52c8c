"""The absl binaries: train, evaluate, report, and one per paper."""
