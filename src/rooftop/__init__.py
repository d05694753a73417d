"""rooftop: which parallel layout serves this LLM fastest here, and how do we know?"""

__version__ = "0.1.0"
