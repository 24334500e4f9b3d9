from wirelake.message import Topic
from wirelake.protocols.frame import Sender
from wirelake.protocols.redis.constants import REDIS_SKIMMED_BYTES_MAX
from wirelake.protocols.redis.fast_path import publish_run
from wirelake.protocols.redis.frames import Command
from wirelake.protocols.redis.reader import decode


def publish(topic: bytes, content: bytes) -> bytes:
    return Command((b"PUBLISH", topic, content)).encode()


def test_a_run_on_one_live_name_is_one_bundle() -> None:
    frames = [publish(b"a", b"1"), publish(b"a", b"22"), publish(b"b", b"3")]
    bundle = publish_run(frames, 0)
    assert bundle is not None
    assert (bundle.topic, bundle.frames) == ("a", frames[:2])
    second = publish_run(frames, 2)
    assert second is not None
    assert second.topic == "b"


def test_what_is_passed_on_is_what_would_have_been_encoded() -> None:
    contents = [b"1", b"with\r\nlines", b""]
    bundle = publish_run([publish(b"a", content) for content in contents], 0)
    assert bundle is not None
    for audience, head in (("resp 2", b"*3"), ("resp 3", b">3")):
        expected = b"".join(
            head + b"\r\n$7\r\nmessage\r\n$1\r\na\r\n$%d\r\n%b\r\n" % (len(content), content) for content in contents
        )
        assert bundle.encoded(audience) == expected
    assert bundle.encoded("comet") is None
    assert [(message.target, message.payload) for message in bundle.messages()] == [
        (Topic("a"), content) for content in contents
    ]


def test_a_durable_topic_is_read_for_its_contents() -> None:
    contents = [b"1", b"with\r\nlines", b"", b"\xff" * 300]
    bundle = publish_run([publish(b"@a", content) for content in contents], 0)
    assert bundle is not None
    assert (bundle.topic, bundle.is_durable, bundle.contents()) == ("@a", True, contents)


def test_contents_of_one_length_are_cut_together_and_are_the_same() -> None:
    """Also where a content looks like the end of one command and the head of the next."""
    inside = b"\r\n" + publish(b"@a", b"x" * 100)[:-102]
    for odd in (b"y" * 100, b"", b"z" * 99, inside + b"y" * (100 - len(inside)), b"\r\n" * 50):
        for place in (0, 1, 7, 8, 9, 41, 199):
            contents = [b"%0100d" % number for number in range(200)]
            contents[place] = odd
            bundle = publish_run([publish(b"@a", content) for content in contents], 0)
            assert bundle is not None
            assert bundle.contents() == contents
            other = [publish(b"@a", content) for content in contents[:place]] + [publish(b"@b", odd)]
            bundle = publish_run(other, 0)
            assert bundle is not None
            assert bundle.contents() == (contents[:place] or [odd])


def test_a_name_that_only_begins_the_same_is_another() -> None:
    bundle = publish_run([publish(b"a", b"1"), publish(b"ab", b"1")], 0)
    assert bundle is not None
    assert len(bundle.frames) == 1


def test_what_has_to_be_read_is_left_alone() -> None:
    for frame in (
        publish(b"a" * 257, b"1"),
        publish(b"a", bytes(REDIS_SKIMMED_BYTES_MAX)),
        publish(b"", b"1"),
        publish(b"\xff", b"1"),
        publish(b"a\nb", b"1"),
        Command((b"PUBLISH", b"a")).encode(),
        Command((b"publish", b"a", b"1")).encode(),
        Command((b"GET", b"a")).encode(),
        publish(b"a", b"1")[:-2] + b"XY",
    ):
        assert publish_run([frame], 0) is None


def test_a_frame_without_its_end_stops_the_run() -> None:
    good, bad = publish(b"a", b"1"), publish(b"a", b"1")[:-2] + b"XY"
    bundle = publish_run([good, bad, good], 0)
    assert bundle is not None
    assert bundle.frames == [good]


def test_a_skimmed_frame_is_one_that_decodes() -> None:
    bundle = publish_run([publish(b"a", b"1")] * 3, 0)
    assert bundle is not None
    assert all(decode(frame, Sender.CLIENT).name == "command" for frame in bundle.frames)
