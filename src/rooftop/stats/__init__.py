"""From replies to measurements with intervals: pure arithmetic."""
