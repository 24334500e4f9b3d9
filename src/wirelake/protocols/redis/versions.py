"""RESP 3 for those who speak only RESP 2: the nearest value that the older protocol has."""

from wirelake.protocols.redis import frames
from wirelake.protocols.redis.commands import error
from wirelake.protocols.redis.frames import Value


def in_version_2(value: Value) -> Value:  # noqa: PLR0911 (one return a type)
    match value:
        case frames.Null():
            return frames.NullBulkString()
        case frames.Boolean():
            return frames.Integer(int(value.value))
        case frames.Double() | frames.BigNumber():
            return frames.BulkString(value.text)
        case frames.VerbatimString():
            return frames.BulkString(value.data)
        case frames.BulkError():
            return error(value.text)
        case frames.Array() | frames.Set() | frames.Push():
            return frames.Array(
                tuple([item if type(item) is frames.BulkString else in_version_2(item) for item in value.items])
            )
        case frames.EncodedMap():
            return frames.EncodedArray(b"*%d\r\n%b" % (2 * value.count, value.data))
        case frames.Map():
            sides = [side for pair in value.pairs for side in (pair.key, pair.value)]
            return frames.Array(tuple([in_version_2(side) for side in sides]))
        case frames.Attribute():
            return in_version_2(value.value)
    return value
