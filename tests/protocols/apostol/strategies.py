"""Random apostol packets, receipts and commands."""

from hypothesis import strategies as st

from wirelake.protocols.apostol.commands import DeviceCommand, Reading, ServerCommand, Status
from wirelake.protocols.apostol.constants import RECEIPT, TO_DEVICE
from wirelake.protocols.apostol.frames import Packet, Receipt

u8 = st.integers(0, 0xFF)
u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, 0xFFFF_FFFF)
serials = st.text(max_size=60)

packets = st.builds(Packet, st.just(1), st.integers(0, 0x3F), u8, serials, u8, u8, st.binary(max_size=300))
receipts = st.builds(Receipt, st.just(1), st.integers(RECEIPT, 0x7F), u8, serials, u8, u8, st.just(b""))
proper_receipts = st.builds(
    Receipt, st.just(1), st.sampled_from([RECEIPT, RECEIPT | TO_DEVICE]), u8, serials, u8, u8, st.just(b"")
)
any_frames = st.one_of(packets, receipts)

statuses = st.builds(Status, u16, u8, u32, u8, u32)
readings = st.one_of(
    st.builds(Reading, u8, u8, st.just(1)),
    st.builds(Reading, u8, u16, st.just(2)),
    st.builds(Reading, u8, st.integers(0, 2**24 - 1), st.just(3)),
    st.builds(Reading, u8, u32, st.just(4)),
    st.builds(Reading, u8, st.integers(0, 2**48 - 1), st.just(6)),
    st.builds(Reading, u8, st.floats(allow_nan=False), st.just(8)),
    st.binary(max_size=20)
    .filter(lambda raw: len(raw) not in (1, 2, 3, 4, 6, 8))
    .flatmap(lambda raw: st.builds(Reading, u8, st.just(raw), st.just(len(raw)))),
)
device_commands = st.one_of(
    st.builds(DeviceCommand, u32, st.just(1), st.just(0), statuses),
    st.builds(DeviceCommand, u32, st.just(4), st.just(0), st.lists(readings, max_size=6).map(tuple)),
    st.builds(DeviceCommand, u32, st.sampled_from([0, 2, 3, 5, 127]), st.just(0), st.binary(max_size=40)),
    st.builds(DeviceCommand, u32, st.integers(0, 127), st.integers(1, 255)),
)
server_commands = st.builds(ServerCommand, st.integers(0x80, 0xFF), st.binary(max_size=40))

# Packets that hold a whole command in clear, from their proper end.
plain_device_packets = st.builds(
    lambda command, answer, kind, serial, number: Packet(1, 3 | answer, kind, serial, number, 0, command.encode()),
    device_commands,
    st.sampled_from([0, 8]),
    u8,
    serials,
    u8,
)
plain_server_packets = st.builds(
    lambda command, kind, serial, number: Packet(1, 7, kind, serial, number, 0, command.encode()),
    server_commands,
    u8,
    serials,
    u8,
)
