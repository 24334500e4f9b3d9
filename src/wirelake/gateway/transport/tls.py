"""Create the TLS context that all listeners share, so that new files apply to all of them at once."""

import ssl

from wirelake.config import Settings
from wirelake.errors import InputError


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """None where no certificate is set."""
    if not settings.tls.cert:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_files(context, settings)
    return context


def load_files(context: ssl.SSLContext, settings: Settings) -> None:
    """Also into a context in use: connections that come from now on get them."""
    try:
        context.load_cert_chain(settings.tls.cert, settings.tls.key)
        if settings.tls.client_ca:
            context.load_verify_locations(settings.tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"settings: cannot use the files in [tls]: {error}") from error
