"""Take the bytes of all connections out of a capture, whatever their protocol, as samples for the workbench."""

from collections import Counter
from pathlib import Path

from msgspec import Struct, field

from wirelake.capture.ip_packets import HostPort, IpParser, TcpSegment
from wirelake.capture.packet_reader import CaptureReader
from wirelake.capture.tcp_reassembly import TcpReassembly
from wirelake.limits import CAPTURE_FLOWS_MAX, CAPTURE_SAMPLES_BYTES_MAX, CAPTURE_WAITING_BYTES_MAX
from wirelake.workbench.evidence import Sample


class CaptureSamples(Struct):
    samples: list[Sample] = field(default_factory=list)
    are_segments: bool = False  # some are of TCP, in which frames may begin anywhere
    ports: Counter[int] = field(default_factory=Counter)  # samples by port, of either end
    is_complete: bool = True


def capture_samples(path: Path, port: int | None = None) -> CaptureSamples:
    """Return the segments and datagrams of a capture; with a port, only those from or to it."""
    reader, found = CaptureReader(path), CaptureSamples()
    parser = IpParser(reader.skipped)
    streams: dict[tuple[HostPort, HostPort], TcpReassembly] = {}
    size = 0
    for packet in reader:
        content = parser.parse(packet)
        if content is None or (port is not None and port not in (content.source[1], content.target[1])):
            continue
        name = f"{content.source} {content.target}"
        pieces = [content.data]
        if isinstance(content, TcpSegment):
            found.are_segments = True
            key = (content.source, content.target)
            stream = streams.get(key)
            is_new = stream is None or not stream.is_inside_window(content.seq)
            if stream is None or content.syn or is_new:
                if len(streams) >= CAPTURE_FLOWS_MAX:
                    found.is_complete = False
                    break
                stream = streams[key] = TcpReassembly()
            if content.syn:
                stream.start(content.seq + 1)
                continue
            pieces = [piece.data for piece in stream.receive(content.at_us, content.seq, content.data)]
            if stream.waiting_bytes > CAPTURE_WAITING_BYTES_MAX:
                pieces += [piece.data for piece in stream.skip_gap()[1]]
        for data in filter(None, pieces):
            found.samples.append(Sample(data, name))
            found.ports.update({content.source[1], content.target[1]})
            size += len(data)
        if size > CAPTURE_SAMPLES_BYTES_MAX:
            found.is_complete = False
            break
    return found
