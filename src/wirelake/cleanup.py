"""Clean-up that cannot be skipped: a step that fails is logged, and the steps after it still run."""

import logging
from collections.abc import Callable

from wirelake.errors import WirelakeError

_log = logging.getLogger(__name__)


def clean_up(subject: str, *steps: Callable[[], object]) -> None:
    """Run every step in order, whatever the ones before it raise.

    A session that stays behind because its clean-up stopped half way is worse than any single failure. Errors that
    Wirelake raises on purpose (the log refuses a record, say) are logged as a warning; others with their traceback.
    """
    for step in steps:
        try:
            step()
        except WirelakeError as error:
            _log.warning("%s: a step of the clean-up failed: %s", subject, error)
        except Exception:  # noqa: BLE001 (the steps after it must run)
            _log.exception("%s: a step of the clean-up failed", subject)
