"""Run tshark with an exported dissector, and return the fields it shows."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from pcap_writer import CapturedPacket, capture_file

RUN_S = 120.0
Pairs = list[tuple[str, Any]]


class ShownField(Struct, frozen=True):
    """A field as tshark shows it. One without bytes has no place."""

    key: str  # as display filters name it
    place: tuple[int, str] | None  # its offset in the frame, and its bytes in hex
    text: str


class ShownFrame(Struct):
    """One frame, as tshark shows it."""

    packet: int
    source_port: int
    name: str = ""
    fields: list[ShownField] = []
    bits: dict[str, bool] = {}  # flags by their key
    checksum: int | None = None  # 0 bad, 1 good, 2 not verified
    experts: list[str] = []


def run_tshark(
    folder: Path, name: str, dissector: str, packets: Sequence[CapturedPacket], *options: str
) -> list[ShownFrame]:
    """Return the frames of this protocol in a capture of the packets."""
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("NOT TESTED: exported Wireshark dissectors, because tshark is missing (Debian package tshark)")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=RUN_S, check=True).stdout
    if not re.search(r"\bwith\s+Lua\b", version):
        pytest.skip("NOT TESTED: exported Wireshark dissectors, because this tshark was built without Lua")
    script, capture = folder / f"{name}.lua", folder / f"{name}.pcap"
    script.write_text(dissector)
    capture.write_bytes(capture_file(packets))
    command = [
        program,
        "-X",
        f"lua_script:{script}",
        "-r",
        str(capture),
        "-T",
        "json",
        "-x",
        "-o",
        "tcp.check_checksum:TRUE",
    ]
    # A home of its own, so that no settings or plugins of the user change the result.
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, env=environment, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Lua" not in done.stderr, done.stderr
    errors = [line for line in done.stdout.splitlines() if "Lua Error" in line]
    assert not errors, errors[:3]
    return list(_frames(json.loads(done.stdout, object_pairs_hook=list), name))


def _frames(packets: list[Pairs], name: str) -> Iterator[ShownFrame]:
    for packet in packets:
        layers = _get(_get(packet, "_source"), "layers")
        number = int(_get(_get(layers, "frame"), "frame.number"))
        transport = "udp" if any(key == "udp" for key, _ in layers) else "tcp"
        for index, (key, layer) in enumerate(layers):
            if key in (name, f"{name}_frames"):  # the latter if Wireshark has a protocol of this name
                # The key before it has the bytes of the frame, and where they are.
                assert layers[index - 1][0] == f"{key}_raw"
                port = int(_get(_get(layers, transport), f"{transport}.srcport"))
                frame = ShownFrame(number, port)
                _read(frame, layers[index - 1][1][1], layer)
                yield frame


def _read(frame: ShownFrame, start: int, pairs: Pairs) -> None:
    raw: dict[str, list[Any]] = {}  # hex, offset, size, mask and type of the field that follows
    for key, value in pairs:
        if key == "_ws.expert":
            _read_expert(frame, value)
        elif key.endswith("_raw"):
            raw[key.removesuffix("_raw")] = value
        elif key.endswith("_tree"):
            _read_details(frame, key.removesuffix("_tree"), value)
        elif isinstance(value, list):
            _read(frame, start, value)
        elif key.endswith(".frame_name"):
            frame.name = value
        else:
            place = raw.pop(key, None)
            frame.fields.append(ShownField(key, (place[1] - start, place[0]) if place else None, value))


def _read_details(frame: ShownFrame, key: str, pairs: Pairs) -> None:
    """Read what is under a field: the bits of a number, the state of a checksum, an error."""
    for inner, value in pairs:
        if inner == "_ws.expert":
            _read_expert(frame, value)
        elif inner == f"{key}.status":
            frame.checksum = int(value)
        elif not inner.endswith("_raw"):
            frame.bits[inner] = value == "1"


def _read_expert(frame: ShownFrame, pairs: Pairs) -> None:
    """Note an error of the dissector. Wireshark has remarks of its own, as about text after a zero byte."""
    if not pairs[0][0].startswith("_ws."):
        frame.experts.append(_get(pairs, "_ws.expert.message"))


def _get(pairs: Pairs, key: str) -> Any:
    return next(value for name, value in pairs if name == key)
