"""Random magline frames of every type, in both byte orders."""

from hypothesis import strategies as st

from wirelake.protocols.magline import frames
from wirelake.protocols.magline.frames import MaglineFrame

u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, 0xFFFF_FFFF)
key = st.binary(min_size=32, max_size=32)
sids = st.one_of(st.just(b""), st.binary(min_size=16, max_size=16))
hmacs = st.one_of(st.just(frames.OPENED), st.binary(min_size=16, max_size=16))
data = st.one_of(
    st.binary(max_size=80),
    st.sampled_from(
        [
            b'{"user":"u","token":"t"}',
            b'{"topics":["@a"]}',
            b'{"ids":["1","2"]}',
            b'{"topic":"@a","content":"x"}',
            b'{"topic":"@a","content":"_w==","encoding":"base64"}',
            b'{"topic":"@a","content":"/w==","encoding":"base64"}',
            b'{"topic":"@a","id":"1","type":2,"content":"x","ts":3}',
            b'{"ok":true}',
            b"[" * 5000,
        ]
    ),
)


def any_frames(little: st.SearchStrategy[bool]) -> st.SearchStrategy[MaglineFrame]:
    head = {"seq": u32, "head_optional": u16, "header": st.binary(max_size=40), "little": little}
    business = st.one_of(st.integers(0, 20), u32)
    return st.one_of(
        st.builds(frames.Syn, key, key, sids, **head),
        st.builds(frames.Ack, key, key, key, **head),
        st.builds(frames.Err, business, st.one_of(st.integers(0, 12), u32), **head),
        st.builds(frames.Pin, u32, **head),
        st.builds(frames.Pon, u32, **head),
        st.builds(frames.Req, business, hmacs, data, **head),
        st.builds(frames.Rep, business, hmacs, data, **head),
        st.builds(frames.Psh, st.one_of(st.just(5), business), hmacs, data, **head),
        st.builds(frames.Fin, st.one_of(st.integers(0, 6), u32), **head),
    )


either_order = any_frames(st.booleans())
streams = st.booleans().flatmap(lambda little: st.lists(any_frames(st.just(little)), max_size=5))
