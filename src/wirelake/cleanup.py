"""Run clean-up steps that must not be skipped: one that fails is logged, and the others still run."""

import logging
from collections.abc import Callable

from wirelake.errors import WirelakeError

_log = logging.getLogger(__name__)


def clean_up(subject: str, *steps: Callable[[], object]) -> None:
    """Run every step in order, whatever earlier ones raise.

    A session that is never removed, because its clean-up stopped half way, is worse than any single failure. Errors
    that Wirelake raises on purpose (the log refuses a record, for example) are logged as warnings, others with a
    traceback.
    """
    for step in steps:
        try:
            step()
        except WirelakeError as error:
            _log.warning("%s: a clean-up step failed: %s", subject, error)
        except Exception:  # noqa: BLE001 (the remaining steps must run)
            _log.exception("%s: a clean-up step failed", subject)
