"""Compare the pipeline's reassembly with the gateway's: the same packets have the same outcome."""

from fastcrc import crc64
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack
from msgspec.structs import replace
from pipeline.histories import BucketRun, frame, numbered

from wirelake.message import Kind, Message, Op, control_op
from wirelake.pipeline.stateful.events import EVENT_SCHEMA
from wirelake.protocols.apostol.assembly import Assembled
from wirelake.protocols.apostol.commands import DeviceCommand
from wirelake.protocols.apostol.constants import (
    ANSWER,
    APOSTOL_COMMAND_BYTES_MAX,
    COMMAND_BITS,
    FIRST,
    LAST,
    SEALED,
    TO_DEVICE,
    VERSION,
    ZIPPED,
)
from wirelake.protocols.apostol.envelope import build_packets
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.reassembly import RULES, DeviceAssembly, Rules, Seal, pack, unpack
from wirelake.protocols.apostol.server import ServerSession
from wirelake.protocols.apostol.session import SessionSettings
from wirelake.protocols.reassembly import FinishedCommand

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
    """Run its timers too: a command expires at its deadline, whether or not a packet arrives."""
    settings = SessionSettings(
        assembly_s=rules.timeout_us / SECOND,
        command_bytes_max=rules.command_bytes_max,
        assembling_per_device=rules.assembling_max,
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
    assembly, done = DeviceAssembly(), list[FinishedCommand]()
    repeats = late = 0
    for seq, (at, packet) in enumerate(sent):
        number = packet.command_no << 8 | packet.packet_no
        assembly.add(seq, at, "n", packet.params, number, packet.data, done, rules)
        if puts_away:
            repeats, late = repeats + assembly.repeats, late + assembly.late
            assembly = unpack(pack(assembly))
    done += assembly.expire(until, rules)
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
    """Beyond the limits of a device, the oldest open command is refused, and the oldest finished one forgotten."""
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


KEY = bytes(range(16))
DEVICE_TIME = 1000


def genuine(number: int, content: int, size: int) -> list[Packet]:
    """Return a sealed command of the device, the same for the same arguments."""
    command = DeviceCommand(DEVICE_TIME + content, 2, 0, bytes([content]) * 12).encode()
    nonce = bytes([number, content, size]) + bytes(9)
    return build_packets(command, SEALED, 6, "d", number, size, (KEY, nonce))


genuine_packets = st.builds(genuine, st.integers(0, 2), st.integers(0, 9), st.sampled_from((20, 30, 100))).flatmap(
    st.sampled_from
)
forged_packets = st.builds(
    lambda bits, number, packet_no, data: Packet(VERSION, bits, 6, "d", number, packet_no, data),
    st.sampled_from((0, LAST, FIRST | LAST, SEALED, SEALED | LAST, SEALED | FIRST | LAST, SEALED | ZIPPED)),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from((b"x", bytes(20), bytes(30))),
)
Verdict = tuple[int, str, str]  # command_no, state, reason
REASONS = {"assembly_timeout": ""}  # what the state says already


def judged_by_the_gateway(sent: list[tuple[int, Packet]], until: int, require_seal: bool) -> list[Verdict]:
    now = [0.0]
    session = ServerSession(0.0, bytes, SessionSettings(require_seal=require_seal, idle_s=1e9), lambda: now[0])
    messages = list[Message]()
    for at, packet in [*sent, (until, None)]:
        while (due_s := session.deadline_s) is not None and due_s <= at / SECOND:
            messages += session.tick(due_s).messages
        now[0] = at / SECOND
        for message in [] if packet is None else session.receive(packet, now[0]).messages:
            if control_op(message) is Op.LOGIN:
                answer = Message(kind=Kind.RESPONSE, correlation="login", fields={"key": KEY})
                messages += session.send(answer, now[0]).messages
            else:
                messages.append(message)
    return sorted(
        (int(each.correlation), str(each.fields.get("state", "complete")), REASONS.get(reason, reason))
        for each in messages
        for reason in [each.fields.get("reason", "")]
    )


def judged_by_the_pipeline(
    sent: list[tuple[int, Packet]], until: int, require_seal: bool, batches: int
) -> list[Verdict]:
    bucketed = BucketRun(1, {"d": KEY}, Rules(require_seal=require_seal))
    records = numbered([frame("apostol", "in", packet.encode(), at, "s", identity="d") for at, packet in sent])
    for start in range(0, len(records), batches):
        bucketed.batch(records[start : start + batches])
    bucketed.events(EVENT_SCHEMA.empty_table(), until)
    rows = bucketed.rows("silver.device_commands")
    assert (
        len([row for row in rows if row["state"] == "complete"])
        == len({row["data"] + bytes([row["command_no"], row["packets"]]) for row in rows if row["state"] == "complete"})
        or not require_seal
    ), "nothing that is sealed is taken twice"
    return sorted((row["command_no"], row["state"], row["reason"] or "") for row in rows)


@given(
    st.lists(st.tuples(pauses, genuine_packets | forged_packets), max_size=40),
    st.booleans(),
    st.sampled_from((1, 3, 99)),
)
@settings(max_examples=150)
def test_the_same_verdict_on_sealed_forged_and_replayed_commands(
    steps: list[tuple[int, Packet]], require_seal: bool, batches: int
) -> None:
    at, sent = 1000 * SECOND, list[tuple[int, Packet]]()
    for pause, packet in steps:
        at += pause
        sent.append((at, packet))
    until = at + 100 * SECOND
    by_the_gateway = judged_by_the_gateway(sent, until, require_seal)
    assert judged_by_the_pipeline(sent, until, require_seal, batches) == by_the_gateway


def test_what_the_version_before_put_away_goes_on() -> None:
    """Slots of that version had no bits for the seal."""
    first, second, third = genuine(1, 2, 20)
    (single,) = genuine(2, 3, 100)
    crc = crc64.xz
    params = first.params & COMMAND_BITS
    old = {
        "open": {1: [params, 7, SECOND, "n", {0: first.data}, {0: crc(first.data) ^ first.params}, None, 20, 0, 0]},
        "finished": {2: [True, SECOND, {0: crc(single.data) ^ single.params}]},
    }
    assembly = unpack(msgpack.encode([old["open"], old["finished"], 20, 0, 0]))
    done = list[FinishedCommand]()
    seal = Seal({"d": KEY}.get, "d", (6, "d"))
    for packet in (single, second, third):
        number = packet.command_no << 8 | packet.packet_no
        assembly.add(8, 2 * SECOND, "n", packet.params, number, packet.data, done, RULES, seal)
    assert [(each.command_no, each.state, each.packets) for each in done] == [(1, "complete", 3)]
    assert assembly.repeats == 1
