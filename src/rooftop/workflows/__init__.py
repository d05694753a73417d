"""One file per thing a user does; the only place where head and hands meet."""
