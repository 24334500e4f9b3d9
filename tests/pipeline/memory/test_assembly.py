"""The pipeline's assembly against the gateway's own: the same packets must meet the same fate."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from wirelake.limits import APOSTOL_COMMAND_BYTES_MAX
from wirelake.pipeline.memory.assembly import RULES, Assembly, Done, Rules, pack, unpack
from wirelake.protocols.apostol.assembly import Assembled
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.opcodes import ANSWER, FIRST, LAST, SEALED, TO_DEVICE, VERSION, ZIPPED
from wirelake.protocols.apostol.server import ServerSession
from wirelake.protocols.apostol.session import Settings

SECOND = 1_000_000
CHOSEN = Rules(timeout_us=5 * SECOND, command_bytes_max=2, assembling_max=2)  # as settings

LONG = b"long"  # stands for much more
numbers = st.integers(0, 3) | st.integers(0, 255)
params = st.builds(
    lambda place, way, form: place | way | form,
    st.sampled_from((0, 0, FIRST, LAST, FIRST | LAST)),
    st.sampled_from((0, 0, ANSWER, TO_DEVICE)),
    st.sampled_from((0, 0, 0, ZIPPED, SEALED)),
)
packets = st.builds(
    lambda bits, command_no, packet_no, data: Packet(VERSION, bits, 6, "d", command_no, packet_no, data),
    params,
    numbers,
    st.integers(0, 3),
    st.sampled_from((b"", b"a", b"b", b"cc", LONG)),
)
pauses = st.sampled_from((0, 0, SECOND // 64, SECOND, 10 * SECOND, 29 * SECOND, 31 * SECOND))  # exact as floats, too
Fate = tuple[str, int, int, int, int, float, float, bytes, str]


def by_the_gateway(sent: list[tuple[int, Packet]], until: int, rules: Rules = RULES) -> tuple[list[Fate], int, int]:
    """With its timers: what expires does so at its deadline, whether or not a packet comes."""
    settings = Settings(
        assembly_s=rules.timeout_us / SECOND,
        command_bytes_max=rules.command_bytes_max,
        assembling_max=rules.assembling_max,
    )
    assembler, done = ServerSession(0.0, bytes, settings).assembler, list[Assembled]()
    for at, packet in [*sent, (until, None)]:
        while (due_s := assembler.deadline_s) is not None and due_s <= at / SECOND:
            done += assembler.expire(due_s)
        if packet is not None:
            done += assembler.add(packet, at / SECOND)
    fates = [
        (
            each.state.value,
            each.params,
            each.command_no,
            each.packets,
            each.duplicates,
            each.first_at_s,
            each.done_at_s,
            each.data,
            each.reason,
        )
        for each in done
    ]
    return fates, assembler.duplicates, assembler.late


def by_the_pipeline(
    sent: list[tuple[int, Packet]], until: int, puts_away: bool, rules: Rules = RULES
) -> tuple[list[Fate], int, int]:
    assembly, done = Assembly(), list[Done]()
    repeats = late = 0
    for seq, (at, packet) in enumerate(sent):
        number = packet.command_no << 8 | packet.packet_no
        assembly.add(seq, at, "n", packet.params, number, packet.data, done, rules)
        if puts_away:
            repeats, late = repeats + assembly.repeats, late + assembly.late
            assembly = unpack(pack(assembly))
    done += assembly.overdue(until, rules)
    fates = [
        (
            each.state,
            each.params,
            each.command_no,
            each.packets,
            each.repeats,
            each.first_at / SECOND,
            each.done_at / SECOND,
            each.data,
            each.reason,
        )
        for each in done
    ]
    return fates, repeats + assembly.repeats, late + assembly.late


@given(st.lists(st.tuples(pauses, packets), max_size=60), pauses, st.booleans(), st.sampled_from((RULES, CHOSEN)))
@settings(max_examples=200)
def test_the_same_fate_as_in_the_gateway(
    steps: list[tuple[int, Packet]], rest: int, puts_away: bool, rules: Rules
) -> None:
    at, sent = 1000 * SECOND, list[tuple[int, Packet]]()
    for pause, packet in steps:
        at += pause
        sent.append((at, replace(packet, data=bytes(700_000)) if packet.data == LONG else packet))
    assert by_the_pipeline(sent, at + rest, puts_away, rules) == by_the_gateway(sent, at + rest, rules)


def test_many_commands_under_assembly_and_many_finished_ones() -> None:
    """Beyond what is kept for a device, the oldest goes; of finished ones, the oldest is forgotten."""
    first = [(SECOND, Packet(VERSION, FIRST, 6, "d", number, 0, b"x")) for number in range(40)]
    single = [(2 * SECOND, Packet(VERSION, FIRST | LAST, 6, "d", number, 0, b"y")) for number in range(60, 220)]
    again = [(3 * SECOND, packet) for _, packet in [*single[:3], *single[-3:]]]
    sent = [*first, *single, *again]
    found = by_the_pipeline(sent, 50 * SECOND, puts_away=False)
    assert found == by_the_gateway(sent, 50 * SECOND)
    fates, repeats, late = found
    assert [fate[8] for fate in fates[:8]] == ["assembling_per_device_max"] * 8
    assert (repeats, late) == (3, 0)
    assert len([fate for fate in fates if fate[0] == "complete"]) == 160 + 3


def test_too_many_bytes() -> None:
    half = bytes(APOSTOL_COMMAND_BYTES_MAX // 2)
    sent = [(SECOND, Packet(VERSION, 0, 6, "d", number, part, half)) for number in range(4) for part in range(2)]
    sent += [(2 * SECOND, Packet(VERSION, 0, 6, "d", 0, 2, b"x")), (2 * SECOND, Packet(VERSION, 0, 6, "d", 9, 0, half))]
    fates, *_ = by_the_pipeline(sent, 3 * SECOND, puts_away=False)
    assert fates == by_the_gateway(sent, 3 * SECOND)[0]
    assert [(fate[2], fate[8]) for fate in fates] == [(0, "command_bytes_max")]
