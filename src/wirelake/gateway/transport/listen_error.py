"""Explain why a listener cannot be opened."""

import errno
import os

from wirelake.address import Address
from wirelake.errors import InputError


def listen_error(setting: str, address: Address, error: OSError) -> InputError:
    """asyncio wraps the reason in a sentence of its own, which names the address once more."""
    if error.errno == errno.EADDRINUSE:
        reason = f"another program listens there. Stop it, or set listen.{setting} (HOST:PORT, or off)"
    elif error.errno is not None and error.errno > 0:
        reason = os.strerror(error.errno)
    else:  # a name that cannot be looked up
        reason = str(error.strerror)
    return InputError(f"listen.{setting}: cannot listen on {address}: {reason}")
