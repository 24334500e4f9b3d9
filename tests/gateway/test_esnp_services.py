"""esnp over real sockets: services asked and provided, with every flag and error."""

from pathlib import Path

import pytest

from gateway.running import WAIT_S
from gateway.stations import closed, gateway, providing, station
from gateway.wire import data_lines, to, values
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.limits import ESNP_ANSWERS_WAITING_MAX, ESNP_REQUESTS_OPEN_MAX
from wirelake.protocols.esnp.lines import Line, SeqNo
from wirelake.protocols.esnp.values import var_of


async def test_a_request_and_its_answer_keep_every_line(tmp_path: Path) -> None:
    """HEADER, XDATA, VERSION, application lines and those that nobody knows go through untouched, both ways."""
    extra = (
        lines.version_line(1, 2, 3, 4),
        Line(0x05, b"from the reserved range"),
        lines.header_line("lang", var_of("de")),
        lines.xdata_line(7, b"\x00\xff"),
        Line(0x80, b"application"),
        Line(0xFF, b""),
    )
    session = lines.session_info_line("user", var_of({"id": 5, "roles": ["a", "b"]}))

    def kept(message: EsnpMessage) -> list[Line]:
        return [line for line in message.lines if line.type in {0x05, 0x14, 0x1C, 0x1F, 0x80, 0xFF}]

    async with (
        gateway(tmp_path) as running,
        providing(running, "sums") as provider,
        await station(running) as asker,
    ):
        head = [*to("sums", "add", number=77), lines.address_line(10, "o1"), lines.source_address_line(30, "me")]
        body = [session, *extra[2:], *data_lines(a=1, b=2.5, c=[True, None]), lines.payload_line(b"\xff\x00")]
        asker.say(*head, *extra[:2], *body)
        asked = await provider.message()
        assert asked.flags == (4,)
        assert asked.addresses == ((10, "o1"), (20, "add"), (30, "sums"))
        assert asked.source_addresses == ((30, "me"),)
        assert asked.session_infos[0][1].plain() == {"id": 5, "roles": ["a", "b"]}
        assert (values(asked), asked.payload) == ({"a": 1, "b": 2.5, "c": [True, None]}, b"\xff\x00")
        assert kept(asked) == sorted(extra, key=lambda line: (line.type != 0x1F, line.type != 0x05))
        assert asked.message_id not in (None, 77), "each side sees its own numbers only"
        assert asked.head_after_body is None
        provider.answer(asked, *extra, *data_lines(sum=3), lines.payload_line(b"12"), lines.payload_line(b"3"))
        told = await asker.message()
        assert told.flags == (3, 4)
        assert told.source_message_id == 77
        assert told.addresses == ((30, "me"),), "SOURCE_ADDRESS comes back as ADDRESS"
        assert [line for line in told.lines if line.type == 0x10] == [session]
        assert (values(told), told.payload) == ({"sum": 3}, b"123")
        assert kept(told) == kept(asked)
        assert told.head_after_body is None


async def test_answers_come_in_any_order_with_numbers_and_in_turn_without(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as running,
        providing(running, "sums") as provider,
        await station(running) as asker,
    ):
        for name in ("first", "second"):
            asker.say(*to("sums", "add"), *data_lines(name=name))
        for number in (3, 4):
            asker.say(*to("sums", "add", number=number), *data_lines(name=str(number)))
        asker.say(*to("wirelake", "ping"))
        asked = [await provider.message() for _ in range(4)]
        for each in reversed(asked):
            provider.answer(each, *data_lines(**values(each)))
        heard = [await asker.message() for _ in range(5)]
        assert [values(each).get("name") for each in heard] == ["4", "3", "first", "second", None]
        assert [each.source_message_id for each in heard] == [4, 3, None, None, None]


@pytest.mark.parametrize("flag", [5, 6])
async def test_what_wants_no_answer_is_passed_on_and_not_answered(tmp_path: Path, flag: int) -> None:
    async with (
        gateway(tmp_path) as running,
        providing(running, "sums") as provider,
        await station(running) as asker,
    ):
        asker.say(*to("sums", "note", flag=flag, number=1 if flag == 6 else None), *data_lines(a=1))
        told = await provider.message()
        assert (told.flags, told.message_id, values(told)) == ((flag,), None, {"a": 1})
        asker.say(*to("nobody", "note", flag=flag))
        asker.say(*to("wirelake", "publish", flag=flag), *data_lines(topic="@a", content="x"))
        await running.recorded("publish")
        assert (await asker.ask_gateway("ping")).flags == (3, 4), "nothing else was said"
        assert running.gateway.broker.services.open == 0


# As the authors' Go library writes them: UInt8, UInt32, Float32, and a Map and a List with plain counts; two payloads.
FOREIGN_LINES = [
    lines.Line(0x15, bytes.fromhex("02610807")),
    lines.Line(0x15, bytes.fromhex("02620a8001")),
    lines.Line(0x15, bytes.fromhex("02630d3fc00000")),
    lines.Line(0x15, bytes.fromhex("026d1501026b0502")),
    lines.Line(0x15, bytes.fromhex("026c170205020504")),
    lines.payload_line(b"one"),
    lines.payload_line(b"two"),
]


def body_of(message: EsnpMessage) -> list[lines.Line]:
    return [line for line in message.lines if line.type in (0x14, 0x15, 0x16)]


async def test_lines_go_from_requester_to_provider_and_back_byte_for_byte(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as running,
        providing(running, "sums") as provider,
        await station(running) as asker,
    ):
        asker.say(*to("sums", "add", number=1), *FOREIGN_LINES)
        asked = await provider.message()
        assert body_of(asked) == FOREIGN_LINES
        assert values(asked) == {"a": 7, "b": 128, "c": 1.5, "m": {"k": 1}, "l": [1, 2]}
        provider.answer(asked, *reversed(FOREIGN_LINES))
        answered = await asker.message()
        assert (answered.flags, answered.error) == ((3, 4), None)
        assert body_of(answered) == [*reversed(FOREIGN_LINES)]


async def test_an_info_with_a_number_gets_its_answer(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as running,
        providing(running, "sums") as provider,
        await station(running) as asker,
    ):
        asker.say(*to("sums", "note", flag=5, number=9), *data_lines(a=1))
        asked = await provider.message()
        assert (asked.flags, values(asked)) == ((5,), {"a": 1})
        provider.answer(asked, *data_lines(b=2))
        answered = await asker.message()
        assert (answered.flags, answered.source_message_id, values(answered)) == ((3, 5), 9, {"b": 2})


async def test_flag_7_is_answered_at_once_and_worked_on_later(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as running,
        providing(running, "sums") as provider,
        await station(running) as asker,
    ):
        told = await asker.ask(*to("sums", "add", number=9), lines.flag_line(7), *data_lines(a=1))
        assert (told.flags, told.source_message_id, told.error) == ((3, 4), 9, None)
        asked = await provider.message()
        assert (asked.flags, values(asked)) == ((4,), {"a": 1}), "7 was meant for the gateway"
        provider.answer(asked, *data_lines(sum=1))
        told = await asker.ask(*to("nobody", "add", number=10), lines.flag_line(7))
        assert told.error is None
        assert (await asker.ask_gateway("ping")).source_message_id is None, "what came of it goes nowhere"


async def test_flag_1_tells_of_every_hop_before_the_answer(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as running,
        providing(running, "sums") as provider,
        await station(running) as asker,
    ):
        asker.say(*to("sums", "add", number=5), lines.flag_line(1))
        asked = await provider.message()
        assert asked.flags == (4,), "the trace is the asker's own affair"
        provider.answer(asked, lines.seq_no_line(1, 2))
        provider.answer(asked, lines.seq_no_line(2, 2))
        heard = [await asker.message() for _ in range(5)]
        assert [each.flags for each in heard] == [(2,), (2,), (2,), (3, 4), (3, 4)]
        assert {each.source_message_id for each in heard} == {5}
        hops = [values(each) for each in heard[:3]]
        assert [(hop["hop"], hop["node"]) for hop in hops] == [
            ("received", "local"),
            ("routed to", "provider"),
            ("answered by", "provider"),
        ]
        times = [hop["at_ms"] for hop in hops]
        assert times == sorted(times)
        assert abs(times[0] - running.gateway.now_ms()) < WAIT_S * 1000
        asker.say(*to("wirelake", "subscribe", number=6), lines.flag_line(1), *data_lines(topic="@a"))
        heard = [await asker.message() for _ in range(3)]
        assert [values(each).get("hop") for each in heard] == ["received", "answered by", None]
        asker.say(*to("nobody", "add", number=7), lines.flag_line(1))
        heard = [await asker.message() for _ in range(2)]
        assert [values(each).get("hop") for each in heard] == ["received", None]
        assert heard[1].error is not None


async def test_an_answer_in_several_messages_is_numbered(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as running,
        providing(running, "sums") as provider,
        await station(running) as asker,
    ):
        for last in (3, 0):
            asker.say(*to("sums", "list", number=1))
            asked = await provider.message()
            for current in (1, 2, 3):
                provider.answer(
                    asked,
                    lines.seq_no_line(current, 3 if current == 3 else last),
                    *data_lines(part=current),
                )
            parts = [await asker.message() for _ in range(3)]
            assert [part.seq_no for part in parts] == [SeqNo(1, last), SeqNo(2, last), SeqNo(3, 3)]
            assert [values(part)["part"] for part in parts] == [1, 2, 3]
        provider.answer(asked, *data_lines(part=4))
        assert values(await asker.ask_gateway("ping")) == {}, "one answer too many goes nowhere"


async def test_providers_of_one_service_take_turns_and_may_leave(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as running,
        await station(running) as asker,
        providing(running, "sums", user="one") as one,
    ):
        async with providing(running, "sums", user="two") as two:
            for number in range(4):
                asker.say(*to("sums", "add", number=number))
            for provider in (one, two):
                for _ in range(2):
                    provider.answer(await provider.message())
            assert {(await asker.message()).error for _ in range(4)} == {None}
            asker.say(*to("sums", "add", number=4))
            asker.say(*to("sums", "add", number=5))
            await one.message()
            await two.message()
        lost = await asker.message()
        assert (lost.source_message_id, lost.error) == (5, "the provider went away")
        assert (await one.ask_gateway("unregister", service="sums")).error is None
        missing = await asker.ask(*to("sums", "add"))
        assert missing.error == "Address[20=add,30=sums] not found ServiceHandler"


async def test_no_answer_in_time(tmp_path: Path) -> None:
    """By the HEADER `to`, or the setting where there is none."""
    async with (
        gateway(tmp_path, broker={"call_s": 0.05}) as running,
        providing(running, "sums") as provider,
        await station(running) as asker,
    ):
        assert (await asker.ask(*to("sums", "add"))).error == "timeout"
        slow = await provider.message()
        assert (await asker.ask(*to("sums", "add", number=8), lines.header_line("to", var_of(40)))).error == "timeout"
        asked = await provider.message()
        assert asked.headers[0][1].plain() == 40, "the provider may know how long it has"
        provider.answer(slow, *data_lines(sum=1))
        asker.say(*to("sums", "add", number=9), lines.header_line("to", var_of(60_000)))
        provider.answer(await provider.message(), *data_lines(sum=2))
        told = await asker.message()
        assert (told.source_message_id, values(told)) == (9, {"sum": 2}), "what came late went nowhere"


async def test_an_error_of_the_provider_reaches_the_asker_in_its_words(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as running,
        providing(running, "sums") as provider,
        await station(running) as asker,
    ):
        asker.say(*to("sums", "add", number=1))
        provider.answer(await provider.message(), lines.error_line("nicht genug — 42"))
        assert (await asker.message()).error == "nicht genug — 42"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (to("nobody", "add"), "Address[20=add,30=nobody] not found ServiceHandler"),
        (to("nobody", "")[:1], "Address[] not found ServiceHandler"),
        (to("wirelake", "dance"), "Address[20=dance,30=wirelake] not found ServiceHandler"),
        (to("wirelake", "subscribe"), "subscribe needs DATA topic"),
        (to("wirelake", "unsubscribe"), "unsubscribe needs DATA topic"),
        (to("wirelake", "publish"), "publish needs DATA topic"),
        (to("wirelake", "register"), "register needs DATA service, not our own"),
        ([*to("wirelake", "register"), *data_lines(service="wirelake")], "register needs DATA service, not our own"),
        ([*to("wirelake", "register"), *data_lines(service="devices")], "the service devices is the gateway's own"),
        ([*to("wirelake", "subscribe"), *data_lines(topic="@a\n")], "a topic's name has printable characters only"),
        ([*to("wirelake", "publish"), *data_lines(topic="x" * 257)], "a topic's name has 1 to 256 characters"),
        (
            [*to("sums", "add"), lines.payload_line(b"x"), lines.flag_line(4)],
            "a head line behind a body line (byte 29)",
        ),
        ([*to("sums", "add"), Line(0x15, b"\x04a")], "malformed: "),
    ],
)
async def test_errors_that_the_connection_outlives(tmp_path: Path, said: list[Line], error: str) -> None:
    async with gateway(tmp_path) as running, await station(running) as caller:
        told = await caller.ask(*said)
        assert told.flags[0] == 3
        assert told.error is not None
        assert told.error.startswith(error)
        assert (await caller.ask_gateway("ping")).error is None


@pytest.mark.parametrize(
    ("wire", "code"),
    [("00000001", "end_size"), ("11000001 00 00000000", "line_size"), ("1f000002 0102 00000000", "line_size")],
)
async def test_bytes_that_are_no_message_close(tmp_path: Path, wire: str, code: str) -> None:
    async with gateway(tmp_path) as running, await station(running) as caller:
        caller.write(EsnpMessage(tuple(to("wirelake", "ping"))).encode() + bytes.fromhex(wire))
        assert (await caller.message()).error is None
        assert await closed(caller) is not None
        (row,) = await running.unread(protocol="esnp")
        assert row["frame"] == bytes.fromhex(wire)
        assert row["note"]["code"] == code


async def test_too_many_requests(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, providing(running, "sums"), await station(running) as asker:
        for number in range(ESNP_REQUESTS_OPEN_MAX + 1):
            asker.say(*to("sums", "add", number=number))
        told = await asker.message()
        assert told.source_message_id == ESNP_REQUESTS_OPEN_MAX
        assert told.error == f"busy: {ESNP_REQUESTS_OPEN_MAX} requests are open"
    async with gateway(tmp_path) as running, providing(running, "sums"), await station(running) as asker:
        asker.say(*to("sums", "add"))
        asker.write(EsnpMessage(tuple(to("wirelake", "ping"))).encode() * (ESNP_ANSWERS_WAITING_MAX + 1))
        assert await closed(asker) == "too many answers wait their turn"


async def test_a_trace_tells_of_the_gateways_own_services_too(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, await station(running) as asker:
        for service, op in (("wirelake", "ping"), ("sisdb", "tables")):
            asker.say(lines.flag_line(1), *to(service, op, number=3))
            hops = []
            while (heard := await asker.message()).flags == (2,):
                hops.append(values(heard)["hop"])
            assert (heard.flags, heard.error) == ((3, 4), None)
            assert (hops[0], hops[-1]) == ("received", "answered by"), (service, hops)
