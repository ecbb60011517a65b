"""Plain-torch twins of the kernels: the definition of each result, and the path of CPU tensors."""
