"""What the settings of a protocol are made of.

A protocol's `Settings` is its section of wirelake.toml: the fields are the keys, the annotations are what is checked
when the file is read, and the comment on each field's line is its documentation. Checks across fields belong into
`__post_init__`, which raises ValueError or InputError.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

ByteCount = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
SecondsOrNever = Annotated[float, Meta(ge=0)]  # 0 is never

# The sections of wirelake.toml that are the gateway's own: no protocol can have their names.
SECTIONS: Final = frozenset({"data", "listen", "tls", "auth", "log", "limits", "broker", "fetch", "http"})


class ProtocolSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every protocol's `Settings`. By itself: a protocol that has none."""
