"""SecureSGD: heterogeneous Gaussian noise."""
