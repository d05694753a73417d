"""The face in the terminal: words in, tables out."""
