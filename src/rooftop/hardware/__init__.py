"""What the machine is: processors, memory, GPUs; one vendor or place a file."""
