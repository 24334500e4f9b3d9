"""Former module of `TopicClient`, which is in `client.py` now. The next release removes it."""

import warnings

from wirelake.clients.client import TopicClient

__all__ = ["TopicClient"]

warnings.warn("import TopicClient from wirelake.clients.client", DeprecationWarning, stacklevel=2)
