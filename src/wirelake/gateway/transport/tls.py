"""Create the TLS context that all listeners share, so that new files apply to all of them at once."""

import ssl

from wirelake.config import Settings
from wirelake.errors import InputError


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Create the TLS context. Return None if no certificate is configured."""
    if not settings.tls.cert:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificates(context, settings)
    return context


def load_certificates(context: ssl.SSLContext, settings: Settings) -> None:
    """Load the certificate files. In a context that is in use, they apply to new connections."""
    try:
        context.load_cert_chain(settings.tls.cert, settings.tls.key)
        if settings.tls.client_ca:
            context.load_verify_locations(settings.tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"settings: cannot use the files in [tls]: {error}") from error
