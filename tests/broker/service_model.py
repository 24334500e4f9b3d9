"""What services must do: each request gets exactly one final answer, from whoever was asked or from the gateway."""

from msgspec import Struct

from broker.peers import FakePeer
from wirelake.message import Message


class Asked(Struct):
    asker: FakePeer
    correlation: str
    due_s: float
    timeout_s: float
    provider: FakePeer | None = None
    number: str = ""  # what the provider knows it by
    answered: bool = False
    parts: int = 0  # that came before the final answer


class ServiceModel:
    def __init__(self) -> None:
        self.providers: dict[str, dict[str, FakePeer]] = {}
        self.calls: list[Asked] = []

    def asked(
        self, asker: FakePeer, service: str, correlation: str, now_s: float, timeout_s: float, before: dict[str, int]
    ) -> None:
        """A request was handled: one provider heard of it, or the asker was told that there is none."""
        call = Asked(asker, correlation, now_s + timeout_s, timeout_s)
        self.calls.append(call)
        providers = self.providers.get(service, {})
        if not providers:
            call.answered = True
            assert _code(asker.answers(correlation)[-1]) == 404
            return
        new = [(peer, message) for peer in providers.values() for message in peer.asked()[before[peer.id] :]]
        assert len(new) == 1, "a request goes to one provider"
        call.provider, call.number = new[0][0], new[0][1].correlation

    def open(self) -> list[Asked]:
        return [call for call in self.calls if not call.answered]

    def answered(self, call: Asked, *, more: bool, now_s: float) -> None:
        """With each part of an answer, the time for the next one begins."""
        if more:
            call.parts += 1
            call.due_s = max(call.due_s, now_s + call.timeout_s)
        else:
            call.answered = True

    def ticked(self, now_s: float) -> None:
        for call in self.open():
            if call.due_s <= now_s:
                call.answered = True
                assert _code(call.asker.answers(call.correlation)[-1]) == 504

    def left(self, peer: FakePeer) -> None:
        for providers in self.providers.values():
            providers.pop(peer.id, None)
        self.calls = [call for call in self.calls if call.asker is not peer]
        for call in self.open():
            if call.provider is peer:
                call.answered = True
                assert _code(call.asker.answers(call.correlation)[-1]) == 502

    def check(self) -> None:
        for call in self.calls:
            came = call.asker.answers(call.correlation)
            assert [bool(each.more) for each in came] == [True] * call.parts + [False] * call.answered, call.correlation


def _code(answer: Message) -> int:
    return answer.failure.code if answer.failure is not None else 0
