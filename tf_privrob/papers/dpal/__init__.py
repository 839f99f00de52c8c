"""DPAL / StoBatch: functional mechanism and DP adversarial examples."""
