"""The load client, run in a process of its own: sends requests, keeps bytes and stamps."""
