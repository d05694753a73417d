"""From a model's files to its Architecture: configuration, weight index, GGUF header."""
