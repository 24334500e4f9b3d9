"""Messages of other protocols that ride inside sisnet. What is inside is looked at only by whoever serves it.

n a m e : H …     an HTTP request, or its answer
n a m e : R …     a RESP command, or its answer
"""

from wirelake.protocols.sisnet.names import SisnetFrame


class Http(SisnetFrame, frozen=True):
    name = "http"
    content: bytes

    def _rest(self) -> bytes:
        return b"H" + self.content


class Redis(SisnetFrame, frozen=True):
    name = "redis"
    content: bytes

    def _rest(self) -> bytes:
        return b"R" + self.content
