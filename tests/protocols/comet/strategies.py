"""Random comet frames of every type."""

from hypothesis import strategies as st

from wirelake.protocols.comet import frames
from wirelake.protocols.comet.frames import CometFrame

texts = st.text(max_size=40)
lists = st.lists(texts, max_size=5).map(tuple)
u8 = st.integers(0, 255)
notifications = st.builds(frames.Message, u8, texts, st.binary(max_size=60), st.integers(-(2**63), 2**63 - 1))

client_frames: st.SearchStrategy[CometFrame] = st.one_of(
    st.builds(frames.Auth, texts, texts),
    st.builds(frames.ExchangeKey, st.binary(max_size=300)),
    st.builds(frames.GetTopicList),
    st.builds(frames.Subscribe, lists),
    st.builds(frames.Unsubscribe, lists),
    st.builds(frames.GetMessageList),
    st.builds(frames.Heartbeat),
    st.builds(frames.MessageAck, lists),
    st.builds(frames.ReportEnviron, u8, u8, texts, lists),
)
server_frames: st.SearchStrategy[CometFrame] = st.one_of(
    st.builds(frames.Ok),
    st.builds(frames.Error, u8, texts),
    st.builds(frames.AuthSuccess, st.binary(max_size=300)),
    st.builds(frames.TopicList, lists),
    st.builds(frames.MessageList, st.lists(notifications, max_size=4).map(tuple)),
    notifications,
)
any_frames = st.one_of(client_frames, server_frames)
