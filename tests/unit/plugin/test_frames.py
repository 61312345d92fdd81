from __future__ import annotations

import os

import pytest

from pytest_evo.plugin.frames import frame_pair
from pytest_evo.plugin.frames import FrameForged
from pytest_evo.plugin.frames import FrameWriter
from pytest_evo.plugin.messages import encode
from pytest_evo.plugin.messages import Finished
from pytest_evo.plugin.messages import Started


@pytest.fixture
def line():
    reader, descriptor = frame_pair()
    writer = FrameWriter(descriptor)
    yield reader, writer
    reader.close()
    os.close(writer.fileno())


def test_frames_come_out_in_order(line):
    reader, writer = line
    sent = [Started("r", "a", 0), Finished("r", "a", 0, payload=b"x" * 100_000)]
    for message in sent:
        writer.send(message)
    assert list(reader.messages()) == sent


def test_half_a_frame_waits_for_the_rest(line):
    reader, writer = line
    writer.send(Started("r", "a", 0))
    data = reader._end.recv(1000)
    reader._buffer += data[:30]
    assert list(reader.messages()) == []
    reader._buffer += data[30:]
    assert list(reader.messages()) == [Started("r", "a", 0)]


@pytest.mark.parametrize(
    "noise",
    [
        b"some output of a test, long enough to look like a frame",
        len(encode(Started("r", "a", 0))).to_bytes(4, "big")
        + bytes(16)
        + encode(Started("r", "a", 0)),
    ],
    ids=["text", "unsigned"],
)
def test_bytes_of_strangers_are_noticed(line, noise):
    reader, writer = line
    writer.send(Started("r", "a", 0))
    os.write(writer.fileno(), noise)
    found = reader.messages()
    assert next(found) == Started("r", "a", 0)
    with pytest.raises(FrameForged):
        list(found)


def test_frame_that_is_played_again_is_noticed(line):
    reader, writer = line
    writer.send(Started("r", "a", 0))
    data = reader._end.recv(1000)
    os.write(writer.fileno(), data + data)
    found = reader.messages()
    assert next(found) == Started("r", "a", 0)
    with pytest.raises(FrameForged):
        list(found)


def test_descriptor_moves_out_of_the_way(line):
    _, writer = line
    assert writer.fileno() > 900


def test_fork_of_a_test_cannot_write(line):
    reader, writer = line
    pid = os.fork()
    if pid == 0:
        writer.send(Started("r", "forged", 0))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert list(reader.messages()) == []
