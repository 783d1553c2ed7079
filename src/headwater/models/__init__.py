"""PyTorch models over the `kernels` interface; they know tensors, not requests."""
