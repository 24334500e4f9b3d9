"""Former module of `ServiceClient`, which is in `serving.py` now. The next release removes it."""

import warnings

from wirelake.clients.serving import ServiceClient

__all__ = ["ServiceClient"]

warnings.warn("import ServiceClient from wirelake.clients.serving", DeprecationWarning, stacklevel=2)
