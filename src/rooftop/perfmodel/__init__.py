"""What a layout can do, from shapes and data sheets alone."""
