"""TLS between two byte buffers; imported only where a server is asked over https."""

import ssl


def make_context(*, verify: bool) -> ssl.SSLContext:
    """System trust and HTTP/1.1, or no trust at all where it is not to be verified."""
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class Tls:
    """One side of a TLS connection; the socket's bytes are handed in and out, so that their stamps stay known."""

    __slots__ = ("incoming", "outgoing", "wire")

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.wire = context.wrap_bio(self.incoming, self.outgoing, server_hostname=host)

    def shake(self) -> bool:
        """Go on with the handshake; whether it is done.  Raises ssl.SSLError."""
        try:
            self.wire.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read_into(self, room: memoryview) -> int:
        """Decrypt into `room` what has come; how many bytes.  Raises ssl.SSLError."""
        count = 0
        while count < len(room):
            try:
                plain = self.wire.read(len(room) - count)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                break
            if not plain:
                break
            room[count:count + len(plain)] = plain
            count += len(plain)
        return count

    @staticmethod
    def is_fault(error: OSError) -> bool:
        """Whether it is TLS that failed, not the connection under it."""
        return isinstance(error, ssl.SSLError)
