"""The face in the browser: one self-contained HTML file."""
