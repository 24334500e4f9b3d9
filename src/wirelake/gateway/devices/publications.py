"""Publications of what devices report, until the state has them.

A device's receipt promises that its report is in the log and published. So a report is not even taken while the state
refuses work; a receipt waits for both commits; and when the state's fails, the report is withdrawn: its repeat, which
comes because there was no receipt, is then published like a new one.
"""

import logging
import time
from collections import deque
from collections.abc import Callable

from wirelake.commit import Commit
from wirelake.errors import StorageError
from wirelake.limits import GATEWAY_TROUBLE_LOG_S, GATEWAY_UNPUBLISHED_PER_DEVICE_MAX
from wirelake.message import Kind, Message
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.opcodes import ANSWER, RECEIPT
from wirelake.protocols.session import Step
from wirelake.state.store import StateStore

_log = logging.getLogger(__name__)


class DevicePublications:
    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._open: deque[tuple[Commit, Callable[[], None]]] = deque()  # in the order in which the state decides
        self._pair: tuple[Commit, Commit] | None = None
        self._joint = Commit.resolved()
        self._logged_s = float("-inf")

    def add(self, commit: Commit, withdraw: Callable[[], None]) -> None:
        """Call `withdraw` if the commit fails, before the next report is looked at."""
        self._open.append((commit, withdraw))

    def settle(self) -> None:
        """Withdraw what the state has lost. To be called before a report is compared with those that came before."""
        while self._open and self._open[0][0].is_done:
            commit, withdraw = self._open.popleft()
            if commit.error is not None:
                withdraw()

    def refusal(self) -> StorageError | None:
        """Return why nothing can be published now, if so."""
        try:
            self._state.writer.check_writable()
        except StorageError as error:
            return error
        return None

    def promise(self, recorded: Commit, published: Commit | None) -> Commit:
        """Return what a receipt waits for. That of a repeat has no publication, but the first one's may be open."""
        if published is None:
            if not self._open:
                return recorded
            published = self._state.barrier()
        if self._pair != (recorded, published):  # mostly the same block and the same batch as the last time
            self._pair = (recorded, published)
            self._joint = Commit.combine(recorded, published)
        return self._joint

    def log_refusal(self, error: StorageError) -> None:
        """Say once in a while that devices get no receipts."""
        now_s = time.monotonic()
        if now_s - self._logged_s >= GATEWAY_TROUBLE_LOG_S:
            self._logged_s = now_s
            _log.warning("reports not stored, devices will resend them: %s", error)


class Unpublished:
    """What one device reported and could not be published, until a repeat comes.

    The packets of these commands came before, so their session takes them for repeats and hands up nothing.
    """

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages: dict[tuple[int, str, int], Message] = {}  # by device type, serial and command_no

    def keep(self, packet: Packet, message: Message) -> None:
        """Keep what the packet's command says; the oldest gives way when there are too many."""
        if len(self._messages) >= GATEWAY_UNPUBLISHED_PER_DEVICE_MAX:
            del self._messages[next(iter(self._messages))]
        self._messages[packet.device_type, packet.serial, packet.command_no] = message

    def add_to(self, step: Step, packet: Packet) -> None:
        """Let a repeat of such a command say again what it says; a new command takes its number."""
        if packet.params & (RECEIPT | ANSWER):
            return
        message = self._messages.pop((packet.device_type, packet.serial, packet.command_no), None)
        if message is not None and not any(each.kind is Kind.TELEMETRY for each in step.messages):
            step.messages.append(message)
