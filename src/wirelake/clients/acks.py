"""Former module of `Acks`, which is `AckTracker` in `notification.py` now. The next release removes it."""

import warnings

from wirelake.clients.notification import AckTracker

warnings.warn("import AckTracker from wirelake.clients.notification", DeprecationWarning, stacklevel=2)


class Acks(AckTracker):
    """Offer an `AckTracker` under the former names of its methods."""

    soon = AckTracker.add
    durable = AckTracker.flush
