"""esnp over real sockets: requests to services, with every flag and error."""

from pathlib import Path

import pytest

from gateway.esnp_client import connect_station, data_lines, esnp_gateway, service_provider, to, values
from gateway.running_gateway import WAIT_S
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.constants import ESNP_ANSWERS_WAITING_MAX, ESNP_REQUESTS_OPEN_MAX
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.lines import Line, SeqNo
from wirelake.protocols.esnp.values import var_of


async def test_a_request_and_its_answer_keep_every_line(tmp_path: Path) -> None:
    """Forward HEADER, XDATA, VERSION, application lines and unknown lines unchanged, both ways."""
    extra = (
        lines.version_line(1, 2, 3, 4),
        Line(0x05, b"from the reserved range"),
        lines.header_line("lang", var_of("de")),
        lines.xdata_line(7, b"\x00\xff"),
        Line(0x80, b"application"),
        Line(0xFF, b""),
    )
    session = lines.session_info_line("user", var_of({"id": 5, "roles": ["a", "b"]}))

    def forwarded_lines(message: EsnpMessage) -> list[Line]:
        return [line for line in message.lines if line.type in {0x05, 0x14, 0x1C, 0x1F, 0x80, 0xFF}]

    async with (
        esnp_gateway(tmp_path) as running,
        service_provider(running, "sums") as provider,
        await connect_station(running) as requester,
    ):
        head = [*to("sums", "add", number=77), lines.address_line(10, "o1"), lines.source_address_line(30, "me")]
        body = [session, *extra[2:], *data_lines(a=1, b=2.5, c=[True, None]), lines.payload_line(b"\xff\x00")]
        requester.send(*head, *extra[:2], *body)
        request = await provider.receive_message()
        assert request.flags == (4,)
        assert request.addresses == ((10, "o1"), (20, "add"), (30, "sums"))
        assert request.source_addresses == ((30, "me"),)
        assert request.session_infos[0][1].plain() == {"id": 5, "roles": ["a", "b"]}
        assert (values(request), request.payload) == ({"a": 1, "b": 2.5, "c": [True, None]}, b"\xff\x00")
        assert forwarded_lines(request) == sorted(extra, key=lambda line: (line.type != 0x1F, line.type != 0x05))
        assert request.message_id not in (None, 77), "each side sees its own numbers only"
        assert request.head_after_body is None
        provider.answer(request, *extra, *data_lines(sum=3), lines.payload_line(b"12"), lines.payload_line(b"3"))
        response = await requester.receive_message()
        assert response.flags == (3, 4)
        assert response.source_message_id == 77
        assert response.addresses == ((30, "me"),), "SOURCE_ADDRESS comes back as ADDRESS"
        assert [line for line in response.lines if line.type == 0x10] == [session]
        assert (values(response), response.payload) == ({"sum": 3}, b"123")
        assert forwarded_lines(response) == forwarded_lines(request)
        assert response.head_after_body is None


async def test_answers_come_in_any_order_with_numbers_and_in_turn_without(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path) as running,
        service_provider(running, "sums") as provider,
        await connect_station(running) as requester,
    ):
        for name in ("first", "second"):
            requester.send(*to("sums", "add"), *data_lines(name=name))
        for number in (3, 4):
            requester.send(*to("sums", "add", number=number), *data_lines(name=str(number)))
        requester.send(*to("wirelake", "ping"))
        request = [await provider.receive_message() for _ in range(4)]
        for each in reversed(request):
            provider.answer(each, *data_lines(**values(each)))
        received = [await requester.receive_message() for _ in range(5)]
        assert [values(each).get("name") for each in received] == ["4", "3", "first", "second", None]
        assert [each.source_message_id for each in received] == [4, 3, None, None, None]


@pytest.mark.parametrize("flag", [5, 6])
async def test_what_wants_no_answer_is_passed_on_and_not_answered(tmp_path: Path, flag: int) -> None:
    async with (
        esnp_gateway(tmp_path) as running,
        service_provider(running, "sums") as provider,
        await connect_station(running) as requester,
    ):
        requester.send(*to("sums", "note", flag=flag, number=1 if flag == 6 else None), *data_lines(a=1))
        response = await provider.receive_message()
        assert (response.flags, response.message_id, values(response)) == ((flag,), None, {"a": 1})
        requester.send(*to("nobody", "note", flag=flag))
        requester.send(*to("wirelake", "publish", flag=flag), *data_lines(topic="@a", content="x"))
        await running.recorded("publish")
        assert (await requester.ask_gateway("ping")).flags == (3, 4), "nothing else was said"
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
        esnp_gateway(tmp_path) as running,
        service_provider(running, "sums") as provider,
        await connect_station(running) as requester,
    ):
        requester.send(*to("sums", "add", number=1), *FOREIGN_LINES)
        request = await provider.receive_message()
        assert body_of(request) == FOREIGN_LINES
        assert values(request) == {"a": 7, "b": 128, "c": 1.5, "m": {"k": 1}, "l": [1, 2]}
        provider.answer(request, *reversed(FOREIGN_LINES))
        final_answer = await requester.receive_message()
        assert (final_answer.flags, final_answer.error) == ((3, 4), None)
        assert body_of(final_answer) == [*reversed(FOREIGN_LINES)]


async def test_an_info_with_a_number_gets_its_answer(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path) as running,
        service_provider(running, "sums") as provider,
        await connect_station(running) as requester,
    ):
        requester.send(*to("sums", "note", flag=5, number=9), *data_lines(a=1))
        request = await provider.receive_message()
        assert (request.flags, values(request)) == ((5,), {"a": 1})
        provider.answer(request, *data_lines(b=2))
        final_answer = await requester.receive_message()
        assert (final_answer.flags, final_answer.source_message_id, values(final_answer)) == ((3, 5), 9, {"b": 2})


async def test_flag_7_is_answered_at_once_and_worked_on_later(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path) as running,
        service_provider(running, "sums") as provider,
        await connect_station(running) as requester,
    ):
        response = await requester.ask(*to("sums", "add", number=9), lines.flag_line(7), *data_lines(a=1))
        assert (response.flags, response.source_message_id, response.error) == ((3, 4), 9, None)
        request = await provider.receive_message()
        assert (request.flags, values(request)) == ((4,), {"a": 1}), "7 was meant for the gateway"
        provider.answer(request, *data_lines(sum=1))
        response = await requester.ask(*to("nobody", "add", number=10), lines.flag_line(7))
        assert response.error is None
        assert (await requester.ask_gateway("ping")).source_message_id is None, "what came of it goes nowhere"


async def test_flag_1_tells_of_every_hop_before_the_answer(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path) as running,
        service_provider(running, "sums") as provider,
        await connect_station(running) as requester,
    ):
        requester.send(*to("sums", "add", number=5), lines.flag_line(1))
        request = await provider.receive_message()
        assert request.flags == (4,), "the trace is the asker's own affair"
        provider.answer(request, lines.seq_no_line(1, 2))
        provider.answer(request, lines.seq_no_line(2, 2))
        received = [await requester.receive_message() for _ in range(5)]
        assert [each.flags for each in received] == [(2,), (2,), (2,), (3, 4), (3, 4)]
        assert {each.source_message_id for each in received} == {5}
        hops = [values(each) for each in received[:3]]
        assert [(hop["hop"], hop["node"]) for hop in hops] == [
            ("received", "local"),
            ("routed to", "provider"),
            ("answered by", "provider"),
        ]
        times = [hop["at_ms"] for hop in hops]
        assert times == sorted(times)
        assert abs(times[0] - running.gateway.now_ms()) < WAIT_S * 1000
        requester.send(*to("wirelake", "subscribe", number=6), lines.flag_line(1), *data_lines(topic="@a"))
        received = [await requester.receive_message() for _ in range(3)]
        assert [values(each).get("hop") for each in received] == ["received", "answered by", None]
        requester.send(*to("nobody", "add", number=7), lines.flag_line(1))
        received = [await requester.receive_message() for _ in range(2)]
        assert [values(each).get("hop") for each in received] == ["received", None]
        assert received[1].error is not None


async def test_an_answer_in_several_messages_is_numbered(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path) as running,
        service_provider(running, "sums") as provider,
        await connect_station(running) as requester,
    ):
        for last in (3, 0):
            requester.send(*to("sums", "list", number=1))
            request = await provider.receive_message()
            for current in (1, 2, 3):
                provider.answer(
                    request,
                    lines.seq_no_line(current, 3 if current == 3 else last),
                    *data_lines(part=current),
                )
            parts = [await requester.receive_message() for _ in range(3)]
            assert [part.seq_no for part in parts] == [SeqNo(1, last), SeqNo(2, last), SeqNo(3, 3)]
            assert [values(part)["part"] for part in parts] == [1, 2, 3]
        provider.answer(request, *data_lines(part=4))
        assert values(await requester.ask_gateway("ping")) == {}, "one answer too many goes nowhere"


async def test_providers_of_one_service_take_turns_and_may_leave(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path) as running,
        await connect_station(running) as requester,
        service_provider(running, "sums", user="one") as one,
    ):
        async with service_provider(running, "sums", user="one") as two:
            for number in range(4):
                requester.send(*to("sums", "add", number=number))
            for provider in (one, two):
                for _ in range(2):
                    provider.answer(await provider.receive_message())
            assert {(await requester.receive_message()).error for _ in range(4)} == {None}
            requester.send(*to("sums", "add", number=4))
            requester.send(*to("sums", "add", number=5))
            await one.receive_message()
            await two.receive_message()
        lost = await requester.receive_message()
        assert (lost.source_message_id, lost.error) == (5, "the provider went away")
        assert (await one.ask_gateway("unregister", service="sums")).error is None
        missing = await requester.ask(*to("sums", "add"))
        assert missing.error == "Address[20=add,30=sums] not found ServiceHandler"


async def test_no_answer_in_time(tmp_path: Path) -> None:
    """Check the timeout of the HEADER `to`, and that of the setting without one."""
    async with (
        esnp_gateway(tmp_path, broker={"call_s": 0.05}) as running,
        service_provider(running, "sums") as provider,
        await connect_station(running) as requester,
    ):
        assert (await requester.ask(*to("sums", "add"))).error == "timeout"
        slow = await provider.receive_message()
        assert (
            await requester.ask(*to("sums", "add", number=8), lines.header_line("to", var_of(40)))
        ).error == "timeout"
        request = await provider.receive_message()
        assert request.headers[0][1].plain() == 40, "the provider may know how long it has"
        provider.answer(slow, *data_lines(sum=1))
        requester.send(*to("sums", "add", number=9), lines.header_line("to", var_of(60_000)))
        provider.answer(await provider.receive_message(), *data_lines(sum=2))
        response = await requester.receive_message()
        assert (response.source_message_id, values(response)) == (9, {"sum": 2}), "what came late went nowhere"


async def test_an_error_of_the_provider_reaches_the_asker_in_its_words(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path) as running,
        service_provider(running, "sums") as provider,
        await connect_station(running) as requester,
    ):
        requester.send(*to("sums", "add", number=1))
        provider.answer(await provider.receive_message(), lines.error_line("nicht genug — 42"))
        assert (await requester.receive_message()).error == "nicht genug — 42"


@pytest.mark.parametrize(
    ("sent", "error"),
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
async def test_errors_that_the_connection_outlives(tmp_path: Path, sent: list[Line], error: str) -> None:
    async with esnp_gateway(tmp_path) as running, await connect_station(running) as caller:
        response = await caller.ask(*sent)
        assert response.flags[0] == 3
        assert response.error is not None
        assert response.error.startswith(error)
        assert (await caller.ask_gateway("ping")).error is None


@pytest.mark.parametrize(
    ("wire", "code"),
    [("00000001", "end_size"), ("11000001 00 00000000", "line_size"), ("1f000002 0102 00000000", "line_size")],
)
async def test_bytes_that_are_no_message_close(tmp_path: Path, wire: str, code: str) -> None:
    async with esnp_gateway(tmp_path) as running, await connect_station(running) as caller:
        caller.write(EsnpMessage(tuple(to("wirelake", "ping"))).encode() + bytes.fromhex(wire))
        assert (await caller.receive_message()).error is None
        assert await caller.receive_last_error() is not None
        (row,) = await running.undecodable_records(protocol="esnp")
        assert row["frame"] == bytes.fromhex(wire)
        assert row["note"]["code"] == code


async def test_too_many_requests(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path) as running,
        service_provider(running, "sums"),
        await connect_station(running) as requester,
    ):
        for number in range(ESNP_REQUESTS_OPEN_MAX + 1):
            requester.send(*to("sums", "add", number=number))
        response = await requester.receive_message()
        assert response.source_message_id == ESNP_REQUESTS_OPEN_MAX
        assert response.error == f"busy: {ESNP_REQUESTS_OPEN_MAX} requests are open"
    async with (
        esnp_gateway(tmp_path) as running,
        service_provider(running, "sums"),
        await connect_station(running) as requester,
    ):
        requester.send(*to("sums", "add"))
        requester.write(EsnpMessage(tuple(to("wirelake", "ping"))).encode() * (ESNP_ANSWERS_WAITING_MAX + 1))
        assert await requester.receive_last_error() == "too many answers wait their turn"


async def test_a_trace_tells_of_the_gateways_own_services_too(tmp_path: Path) -> None:
    async with esnp_gateway(tmp_path) as running, await connect_station(running) as requester:
        for service, op in (("wirelake", "ping"), ("sisdb", "tables")):
            requester.send(lines.flag_line(1), *to(service, op, number=3))
            hops = []
            while (received := await requester.receive_message()).flags == (2,):
                hops.append(values(received)["hop"])
            assert (received.flags, received.error) == ((3, 4), None)
            assert (hops[0], hops[-1]) == ("received", "answered by"), (service, hops)
