"""Ports of this machine."""

import socket


def free_port(host: str) -> int:
    """One that the kernel finds free now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
