"""Names in bodies: of an identity, a device."""

from typing import Annotated

from msgspec import Meta

from wirelake.limits import HTTP_NAME_CHARS_MAX

Name = Annotated[str, Meta(min_length=1, max_length=HTTP_NAME_CHARS_MAX, pattern="^[^\\u0000]*$")]
