"""Plain frozen nouns that every room speaks; standard library only."""
