"""What live names must do: exactly those subscribed when something is published get it, each once for each way."""

from fnmatch import fnmatchcase

from broker.peers import UNSAYABLE, FakePeer, Told

Way = tuple[str, str]  # the pattern ("" for the name itself), the name


class LiveModel:
    def __init__(self, *, conflate: bool) -> None:
        self.conflate = conflate
        self.peers: dict[str, FakePeer] = {}
        self.joined: dict[tuple[str, bool], dict[str, None]] = {}  # (name or pattern, is a pattern) → peer ids
        self.gathered: list[tuple[str, bool, str, Way, bytes]] = []
        self.expected: dict[tuple[str, Way], list[bytes]] = {}
        self.missed: dict[str, dict[Way, bytes]] = {}

    def subscribe(self, peer: FakePeer, name: str, *, pattern: bool) -> None:
        if peer.id not in self.joined.get((name, pattern), {}):
            self.flush(name, pattern)
            self.joined.setdefault((name, pattern), {})[peer.id] = None

    def unsubscribe(self, peer: FakePeer, name: str, *, pattern: bool) -> None:
        self.flush(name, pattern)
        self.joined.get((name, pattern), {}).pop(peer.id, None)
        for way in [way for way in self.missed.get(peer.id, {}) if (way[0] or way[1], bool(way[0])) == (name, pattern)]:
            del self.missed[peer.id][way]

    def publish(self, name: str, content: bytes) -> int:
        """Answers how many it reaches."""
        reached = 0
        for (joined, pattern), peers in self.joined.items():
            if joined == name if not pattern else fnmatchcase(name, joined):
                way = (joined if pattern else "", name)
                self.gathered += [(joined, pattern, peer, way, content) for peer in peers]
                reached += len(peers)
        return reached

    def flush(self, name: str = "", pattern: bool = False) -> None:
        """Everything, or what was gathered under this name."""
        now = [each for each in self.gathered if not name or each[:2] == (name, pattern)]
        self.gathered = [each for each in self.gathered if name and each[:2] != (name, pattern)]
        for _, _, peer_id, way, content in now:
            peer = self.peers.get(peer_id)
            if peer is None:
                continue
            if not peer.is_congested:
                self._expect(peer_id, way, content)
            elif self.conflate:
                self.missed.setdefault(peer_id, {})[way] = content
            else:
                assert peer.ended is not None, f"{peer_id} is slow and still there"
                assert peer.ended.code == "slow_consumer"

    def drained(self, peer: FakePeer) -> None:
        for way, content in self.missed.pop(peer.id, {}).items():
            self._expect(peer.id, way, content)

    def left(self, peer: FakePeer) -> None:
        for peers in self.joined.values():
            peers.pop(peer.id, None)
        self.gathered = [each for each in self.gathered if each[2] != peer.id]
        self.missed.pop(peer.id, None)
        del self.peers[peer.id]
        self.expected = {key: contents for key, contents in self.expected.items() if key[0] != peer.id}

    def check(self) -> None:
        """When nothing is gathered any more."""
        for peer in self.peers.values():
            got: dict[Way, list[bytes]] = {}
            for told in peer.told:
                if not told.topic.startswith("@"):
                    got.setdefault(way_of(told), []).append(told.content)
            expected = {way: contents for (peer_id, way), contents in self.expected.items() if peer_id == peer.id}
            assert got == expected, peer.id

    def _expect(self, peer_id: str, way: Way, content: bytes) -> None:
        if content != UNSAYABLE:
            self.expected.setdefault((peer_id, way), []).append(content)


def way_of(told: Told) -> Way:
    return told.pattern, told.topic
