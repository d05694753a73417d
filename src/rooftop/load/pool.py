"""All connections of a level: opening, idle ones by server, and what opening them cost."""

import select
import socket
from typing import TYPE_CHECKING

from rooftop.load.client import Connection, stamp_receives
from rooftop.load.endpoint import Endpoint

if TYPE_CHECKING:
    import ssl

RETRY_S = 0.01
READ, BOTH = select.EPOLLIN, select.EPOLLIN | select.EPOLLOUT


class Pool:
    """Connections by descriptor, the idle ones by server.

    connect_ns, tls_ns: what each took to connect, and for its TLS handshake; never part of a request's time.
    keeper: an idle socket that asks for stamps; the kernel stamps packets only while some socket does, and takes a
    moment to begin, so that the first packets of new connections could be without.
    later: connections that found the server's queue full; `retry` asks for them again.
    """

    __slots__ = ("connect_ns", "connections", "context", "endpoints", "epoll", "idle", "keeper", "later", "opened",
                 "refused", "tls_ns")

    def __init__(self, endpoints: tuple[Endpoint, ...], context: "ssl.SSLContext | None") -> None:
        self.endpoints, self.context = endpoints, context
        self.epoll = select.epoll()
        self.connections: dict[int, Connection] = {}
        self.idle: list[list[Connection]] = [[] for _ in endpoints]
        self.later: list[Connection] = []
        self.connect_ns: list[int] = []
        self.tls_ns: list[int] = []
        self.opened = self.refused = 0
        self.keeper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        stamp_receives(self.keeper)

    def open(self, server: int) -> None:
        """Begin to connect.  Raises OSError where the system has no socket left."""
        connection = Connection(self.endpoints[server], server, self.opened, self.context)
        self.opened += 1
        self.connections[connection.fd] = connection
        self._await(connection)

    def _await(self, connection: Connection) -> None:
        if connection.begin_again():
            self.epoll.register(connection.fd, BOTH)
        else:
            self.later.append(connection)

    def retry(self) -> float:
        """Ask again for the connections that found the server's queue full; seconds until the next time."""
        later, self.later = self.later, []
        for connection in later:
            if connection.state == "connecting":
                self._await(connection)
        return RETRY_S

    def ready(self, connection: Connection) -> None:
        """Note what connecting took."""
        self.refused = 0
        self.connect_ns.append(connection.connect_ns)
        self.tls_ns.append(connection.tls_ns)
        self.epoll.modify(connection.fd, READ)

    def resting(self) -> int:
        """How many connections idle."""
        return sum(map(len, self.idle))

    def drop(self, connection: Connection) -> None:
        """Close a connection."""
        self.connections.pop(connection.fd, None)
        if connection in self.idle[connection.server]:
            self.idle[connection.server].remove(connection)
        connection.close()

    def watch(self, connection: Connection, *, sending: bool) -> None:
        """Be told when it can be read, or also when more can be sent."""
        self.epoll.modify(connection.fd, BOTH if sending else READ)
