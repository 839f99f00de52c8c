"""Speed and memory beside peers; every module is a binary."""
