"""Former module of `StreamClient`, which is in `client.py` now. The next release removes it."""

import warnings

from wirelake.clients.client import StreamClient

__all__ = ["StreamClient"]

warnings.warn("import StreamClient from wirelake.clients.client", DeprecationWarning, stacklevel=2)
