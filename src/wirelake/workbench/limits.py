"""Limit the workbench for unknown protocols. Each name ends with its unit, as in `wirelake.limits`."""

from typing import Final

from wirelake.limits import KIB, MIB

WORKBENCH_FRAMES_MAX: Final = 2000  # frames of one analysis; of more, they are taken evenly
WORKBENCH_FRAME_BYTES_MAX: Final = 64 * KIB  # longer ones are left out
WORKBENCH_BYTES_MAX: Final = 4 * MIB  # of all frames
WORKBENCH_S: Final = 10.0  # for one analysis; what was found until then is shown
WORKBENCH_HEAD_BYTES: Final = 48  # of a frame, in which fields at fixed places are searched for
WORKBENCH_CONFIDENT_BITS: Final = 20.0  # of a finding; less is not shown
WORKBENCH_LENGTH_SHARE_MIN: Final = 0.9  # of the frames that agree on a length
WORKBENCH_SEGMENT_SHARE_MIN: Final = 0.4  # the same of TCP segments, of which many hold several frames or a part of one
WORKBENCH_CHECKSUM_SHARE_MIN: Final = 0.9  # of the frames whose checksum is right
WORKBENCH_CHECKSUM_START_MAX: Final = 8  # first byte that a checksum at the end covers
WORKBENCH_CHECKSUM_OFFSET_MAX: Final = 16  # of a checksum before what it covers
WORKBENCH_OPCODES_MAX: Final = 64  # values of an opcode
WORKBENCH_TEXTS_SHOWN_MAX: Final = 4
WORKBENCH_ENUMERATIONS_SHOWN_MAX: Final = 4
