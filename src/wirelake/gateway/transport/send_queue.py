"""How much of what was written to a connection has not reached the other host."""

import fcntl
import sys
import termios
from asyncio import BaseTransport, WriteTransport
from typing import Final

_INT_BYTES: Final = 4


def undelivered_bytes(transport: WriteTransport, tls_buffer_bytes_max: int) -> int:
    """Count the bytes in the transport's buffer, and those in the kernel's that the other host has not confirmed.

    Under a TLS transport there is one more buffer that nobody can look into, of at most `tls_buffer_bytes_max`. It is
    empty when the kernel's is, because it is only used when that one is full.
    """
    queued = _kernel_queue_bytes(transport)
    if queued and transport.get_extra_info("sslcontext") is not None:
        queued += tls_buffer_bytes_max
    return transport.get_write_buffer_size() + queued


def _kernel_queue_bytes(transport: BaseTransport) -> int:
    """Linux only. Elsewhere what left the process counts as delivered."""
    if sys.platform != "linux":
        return 0
    socket = transport.get_extra_info("socket")
    if socket is None or (fd := socket.fileno()) < 0:
        return 0
    return int.from_bytes(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(_INT_BYTES)), sys.byteorder)
