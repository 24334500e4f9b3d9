"""Read from the certificate of a client as whom it may log in."""

from collections.abc import Mapping
from typing import Any, Final

from wirelake.config import TlsSection

_NAME_KINDS: Final = frozenset({"DNS", "email", "URI"})  # of a subjectAltName
_NAME_CHARS_MAX: Final = 256  # of a name in the log


def certified_names(tls: TlsSection, certificate: Mapping[str, Any] | None) -> frozenset[str] | None:
    """Return the names that a client with this certificate may log in as; None if the settings do not restrict them.

    `certificate` is what `ssl.SSLSocket.getpeercert` returns. With "cn", one that has several common names has none.
    """
    if not tls.client_identity:
        return None
    subject = certificate or {}
    if tls.client_identity == "san":
        return frozenset(name for kind, name in subject.get("subjectAltName", ()) if kind in _NAME_KINDS)
    names = [value for part in subject.get("subject", ()) for key, value in part if key == "commonName"]
    return frozenset(names if len(names) == 1 else ())


def certificate_name(certificate: Mapping[str, Any] | None) -> str:
    """Return a name to show for a certificate: its common name, else its first subjectAltName; "" without one."""
    subject = certificate or {}
    names = [value for part in subject.get("subject", ()) for key, value in part if key == "commonName"]
    names += [name for _, name in subject.get("subjectAltName", ())]
    return str(names[0])[:_NAME_CHARS_MAX] if names else ""
