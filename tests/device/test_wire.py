"""Frames: what is sent is what is read, and nothing else is read at all."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.device import wire
from interlane.device.wire import FRAME_BYTES, TEXT_BYTES, Flag, Frame, FrameKind, packed, read

u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
frames = st.builds(
    Frame,
    st.sampled_from(FrameKind),
    job=u64,
    device=u16,
    priority=st.integers(-(2**15), 2**15 - 1),
    lane=u32,
    run=u32,
    flags=st.builds(lambda bits: Flag(bits), st.integers(0, sum(Flag))),
    share=u16,
    epoch=u64,
    first=u64,
    second=u64,
    third=u64,
    text=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=wire.TEXT_BYTES),
)


@given(frame=frames)
def test_a_frame_comes_back_as_it_was_sent(frame: Frame) -> None:
    message = packed(frame)

    assert len(message) == FRAME_BYTES
    assert read(message) == frame


@given(message=st.binary(max_size=2 * FRAME_BYTES))
def test_what_is_no_frame_is_read_as_none(message: bytes) -> None:
    assert read(message) is None


@given(frame=frames, at=st.integers(0, FRAME_BYTES - 1), value=st.integers(0, 255))
def test_a_damaged_frame_is_read_as_something_or_none_but_never_raises(
    frame: Frame, at: int, value: int
) -> None:
    damaged = bytearray(packed(frame))
    damaged[at] = value

    found = read(bytes(damaged))

    assert found is None or len(packed(found)) == FRAME_BYTES


def test_a_hundred_thousand_random_frames_crash_nothing() -> None:
    rng = random.Random(5)
    header = packed(Frame(FrameKind.HELLO))[:3]
    understood = 0
    for _ in range(100_000):
        body = rng.randbytes(FRAME_BYTES - len(header))
        # Flags are sparse, or hardly any frame would pass: bits 14 to 20 after the header.
        found = read(header + bytes([rng.randrange(16)]) + body[1:13] + bytes(4) + body[17:])
        understood += found is not None
        if found is not None:
            assert read(packed(found)) is not None
    assert understood > 50_000


@pytest.mark.parametrize(
    ("text", "kept"),
    [("é" * 300, "é" * (TEXT_BYTES // 2)), ("a\x1b[2Jb\nc", "a?[2Jb?c"), ("\ud800", "?")],
)
def test_text_is_cut_at_a_character_and_cannot_move_a_cursor(text: str, kept: str) -> None:
    found = read(packed(Frame(FrameKind.QUEUED, text=text)))

    assert found is not None
    assert found.text == kept
