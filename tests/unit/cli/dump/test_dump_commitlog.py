"""Every message of the golden stores is shown as in its manifest, and damage never hides the rest."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitlog.formats.records import flags
from orbitlog.formats.records.flags import CompressionType
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.formats.records.message_scan import encode_blank
from orbitlog.testing.golden import GoldenStore

Copy = Callable[[GoldenStore], GoldenStore]

NAMES = (
    "topic queueId queueOffset commitLogOffset storeSize msgId offsetMsgId keys tags properties bodyCRC bodySha256"
    " bodyLength sysFlag flag bornTimestamp storeTimestamp bornHost storeHost reconsumeTimes preparedTransactionOffset"
).split()


def expected_row(message: dict[str, Any]) -> dict[str, Any]:
    """Turn a message of the manifest into the row that stands for it."""
    row = {name: message[name] for name in NAMES if name in message}
    row["msgId"] = message["uniqKey"] or message["offsetMsgId"]
    row["bornHost"] = message["bornHost"].replace(" ", ":")
    row["storeHost"] = message["storeHost"].replace(" ", ":")
    return row


def expected_rows(golden: GoldenStore) -> list[dict[str, Any]]:
    return [expected_row(message) for message in golden.manifest["messages"]]


@pytest.fixture(params=["golden_497", "golden_550_crash"])
def golden(request: pytest.FixtureRequest) -> GoldenStore:
    store: GoldenStore = request.getfixturevalue(request.param)
    return store


def segments_of(golden: GoldenStore) -> list[Path]:
    return sorted((golden.store / "commitlog").iterdir())


def test_every_message_is_as_the_manifest_states(golden: GoldenStore, run: Any) -> None:
    ran = run("dump", "commitlog", golden.store, "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.rows == expected_rows(golden)


def test_names_are_the_contract_and_in_its_order(golden_497: GoldenStore, run: Any) -> None:
    for row in run("dump", "commitlog", golden_497.store, "--json", "--limit", "20").rows:
        assert list(row) == NAMES


def test_a_directory_and_its_store_give_the_same(golden: GoldenStore, run: Any) -> None:
    whole = run("dump", "commitlog", golden.store, "--json")
    assert run("dump", "commitlog", golden.store / "commitlog", "--json") == whole


def test_single_segments_together_give_the_whole(golden: GoldenStore, run: Any) -> None:
    parts = [run("dump", "commitlog", segment, "--json") for segment in segments_of(golden)]
    assert {part.exit_code for part in parts} == {0}
    assert [row for part in parts for row in part.rows] == expected_rows(golden)


def test_renamed_segment_shows_its_base_offset(golden_497: GoldenStore, run: Any, tmp_path: Path) -> None:
    third = segments_of(golden_497)[2]
    renamed = tmp_path / "third.bin"
    renamed.write_bytes(third.read_bytes())
    assert run("dump", "commitlog", renamed, "--json") == run("dump", "commitlog", third, "--json")


def test_a_topic_alone(golden: GoldenStore, run: Any) -> None:
    topics = {message["topic"] for message in golden.manifest["messages"]}
    for topic in sorted(topics):
        rows = run("dump", "commitlog", golden.store, "--json", "--topic", topic).rows
        assert rows == [row for row in expected_rows(golden) if row["topic"] == topic]
    assert run("dump", "commitlog", golden.store, "--json", "--topic", "nobody").stdout == ""


def test_from_any_place(golden: GoldenStore, run: Any) -> None:
    rows = expected_rows(golden)
    end = golden.manifest["endOfLastRecord"]
    borders = [row["commitLogOffset"] for row in rows[:: len(rows) // 12]]
    places = {0, 1, end - 1, end, end + 10**9, *borders, *(place + 1 for place in borders)}
    places |= {border["at"] + shift for border in golden.manifest["segmentEnds"] for shift in (0, 8)}
    for place in sorted(places):
        ran = run("dump", "commitlog", golden.store, "--json", "--from", str(place))
        assert ran.exit_code == 0
        assert ran.rows == [row for row in rows if row["commitLogOffset"] >= place]


def test_from_needs_no_earlier_segment(golden_497: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden_497)
    segments = segments_of(copy)
    start = int(segments[3].name)
    expected = [row for row in expected_rows(copy) if row["commitLogOffset"] >= start]
    segments[0].write_bytes(b"not a log any more")
    segments[1].unlink()
    ran = run("dump", "commitlog", copy.store, "--json", "--from", str(start), "--set", "mappedFileSizeCommitLog=65536")
    assert (ran.exit_code, ran.rows) == (0, expected)


@pytest.mark.parametrize("limit", [0, 1, 5, 10_000])
def test_limit(golden_497: GoldenStore, run: Any, limit: int) -> None:
    ran = run("dump", "commitlog", golden_497.store, "--json", "--limit", str(limit))
    assert (ran.exit_code, ran.rows) == (0, expected_rows(golden_497)[:limit])


def test_the_table_has_every_message_and_a_summary(golden_497: GoldenStore, run: Any) -> None:
    ran = run("dump", "commitlog", golden_497.store)
    assert ran.exit_code == 0
    heading, *lines, summary = ran.stdout.splitlines()
    assert heading.split()[:3] == ["offset", "size", "topic"]
    messages = golden_497.manifest["messages"]
    assert [int(line.split()[0]) for line in lines] == [message["commitLogOffset"] for message in messages]
    assert summary.startswith(f"{len(messages)} messages, ")
    assert "7 segments read" in summary


def test_an_empty_log_is_no_problem(tmp_path: Path, run: Any) -> None:
    (tmp_path / "commitlog").mkdir()
    assert run("dump", "commitlog", tmp_path, "--json").exit_code == 0
    assert run("dump", "commitlog", tmp_path).stdout.startswith("0 messages")


# Damage: everything else is still shown, one sentence names the place, the exit code is 1


def check_rest(ran: Any, golden: GoldenStore, lost: set[int], *, sentences: int = 1) -> None:
    """Only the messages at the offsets `lost` are missing."""
    assert ran.exit_code == 1
    assert len(ran.sentences) == sentences, ran.stderr
    expected = [row for row in expected_rows(golden) if row["commitLogOffset"] not in lost]
    assert ran.rows == expected


def at(golden: GoldenStore, number: int) -> dict[str, Any]:
    message: dict[str, Any] = golden.manifest["messages"][number]
    return message


def edit(golden: GoldenStore, physical_offset: int, content: bytes) -> Path:
    """Write bytes at a place of the log."""
    segment = [path for path in segments_of(golden) if int(path.name) <= physical_offset][-1]
    data = bytearray(segment.read_bytes())
    position = physical_offset - int(segment.name)
    data[position : position + len(content)] = content
    segment.write_bytes(data)
    return segment


@pytest.mark.parametrize("byte", [0, 3, 4, 7, 8, 28, 35, 39, 87, 88])
def test_a_flipped_byte_costs_one_message(golden: GoldenStore, golden_copy: Copy, run: Any, byte: int) -> None:
    copy = golden_copy(golden)
    message = at(copy, 10)
    place = message["commitLogOffset"]
    before = segments_of(copy)[0].read_bytes()[place + byte]
    segment = edit(copy, place + byte, bytes([before ^ 0x51]))
    ran = run("dump", "commitlog", copy.store, "--json")
    check_rest(ran, copy, {place})
    following = place + message["storeSize"]
    assert ran.sentences[0].startswith(f"orbitlog: {segment}: physical offset {place} (byte {place} of the file): ")
    assert ran.sentences[0].endswith(f"{message['storeSize']} bytes skipped, reading continued at {following}")


def test_flips_anywhere_never_end_in_a_traceback(golden_497: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden_497)
    chance = random.Random(4711)
    segment = segments_of(copy)[1]
    original = segment.read_bytes()
    for _ in range(60):
        data = bytearray(original)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        segment.write_bytes(data)
        for arguments in (["--json"], []):
            assert run("dump", "commitlog", segment, *arguments).exit_code in (0, 1)


def test_a_zeroed_page_in_the_middle(golden: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden)
    edit(copy, 4096, bytes(4096))
    ran = run("dump", "commitlog", copy.store, "--json")
    lost = {
        message["commitLogOffset"]
        for message in copy.manifest["messages"]
        if message["commitLogOffset"] < 8192 and message["commitLogOffset"] + message["storeSize"] > 4096
    }
    # A record of which only the properties are zero is still a record.
    shown = {row["commitLogOffset"] for row in ran.rows}
    assert ran.exit_code == 1
    assert shown >= {row["commitLogOffset"] for row in expected_rows(copy)} - lost


def test_zeros_from_a_record_on_are_damage_where_records_follow(
    golden_497: GoldenStore, golden_copy: Copy, run: Any
) -> None:
    copy = golden_copy(golden_497)
    message = at(copy, 20)
    edit(copy, message["commitLogOffset"], bytes(message["storeSize"]))
    ran = run("dump", "commitlog", copy.store, "--json")
    check_rest(ran, copy, {message["commitLogOffset"]})
    assert "zeros where records should be" in ran.stderr


def test_a_zeroed_segment_in_the_middle(golden: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden)
    segment = segments_of(copy)[2]
    size = segment.stat().st_size
    segment.write_bytes(bytes(size))
    base = int(segment.name)
    offsets = [row["commitLogOffset"] for row in expected_rows(copy)]
    ran = run("dump", "commitlog", copy.store, "--json")
    check_rest(ran, copy, {offset for offset in offsets if base <= offset < base + size})
    assert f"{size} bytes skipped, reading continued at {base + size}" in ran.stderr


def test_zeros_at_the_end_of_the_last_segment_are_the_end_of_the_log(
    golden_497: GoldenStore, golden_copy: Copy, run: Any
) -> None:
    copy = golden_copy(golden_497)
    next_segment = copy.store / "commitlog" / f"{7 * 65536:020d}"
    next_segment.write_bytes(bytes(65536))
    ran = run("dump", "commitlog", copy.store, "--json")
    assert (ran.exit_code, ran.rows) == (0, expected_rows(copy))


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 50, 91, 4096, 65535])
@pytest.mark.parametrize("number", [0, 3, 6])
def test_a_segment_cut_short(golden_497: GoldenStore, golden_copy: Copy, run: Any, cut: int, number: int) -> None:
    copy = golden_copy(golden_497)
    segment = segments_of(copy)[number]
    base = int(segment.name)
    segment.write_bytes(segment.read_bytes()[:cut])
    ran = run("dump", "commitlog", copy.store, "--json")
    lost = {
        message["commitLogOffset"]
        for message in copy.manifest["messages"]
        if base <= message["commitLogOffset"] < base + 65536
        and message["commitLogOffset"] + message["storeSize"] > base + cut
    }
    check_rest(ran, copy, lost)
    assert f"the file has only {cut} of 65536 bytes" in ran.stderr


def test_records_that_just_end_with_the_file(golden_497: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden_497)
    last = segments_of(copy)[-1]
    end = copy.manifest["endOfLastRecord"] - int(last.name)
    last.write_bytes(last.read_bytes()[:end])
    ran = run("dump", "commitlog", copy.store, "--json")
    check_rest(ran, copy, set())
    assert "ends without a segment end" in ran.stderr


def test_a_missing_segment(golden: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden)
    segment = segments_of(copy)[3]
    base, size = int(segment.name), segment.stat().st_size
    segment.unlink()
    offsets = [row["commitLogOffset"] for row in expected_rows(copy)]
    ran = run("dump", "commitlog", copy.store, "--json")
    check_rest(ran, copy, {offset for offset in offsets if base <= offset < base + size})
    assert f"physical offset {base} " in ran.stderr
    assert f"{size} bytes before this file are missing" in ran.stderr


def test_a_segment_that_is_too_long(golden_497: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden_497)
    segment = segments_of(copy)[1]
    segment.write_bytes(segment.read_bytes() + b"more")
    ran = run("dump", "commitlog", copy.store, "--json")
    check_rest(ran, copy, set())
    assert "the file has 65540 bytes, a segment has 65536" in ran.stderr


def test_a_torn_record_at_the_end(golden: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden)
    last = copy.manifest["messages"][-1]
    end = copy.manifest["endOfLastRecord"]
    middle = last["commitLogOffset"] + 60  # further on only properties might be lost, which nothing protects
    edit(copy, middle, bytes(end - middle))
    ran = run("dump", "commitlog", copy.store, "--json")
    check_rest(ran, copy, {last["commitLogOffset"]})
    assert "nothing follows" in ran.stderr


@pytest.mark.parametrize("has_end", [True, False])
def test_hole_after_the_damage_is_not_read_but_its_end_is_found(tmp_path: Path, run: Any, has_end: bool) -> None:
    """Segments are sparse: damage before a gigabyte of nothing must not cost seconds."""
    directory = tmp_path / "commitlog"
    directory.mkdir()
    size = 1 << 30
    record = encode_message(make_message("T", b"x" * 100))
    with (directory / f"{0:020d}").open("wb") as file:
        file.write(record + b"\xff" * 50)
        end = file.tell()
        if has_end:
            file.write(encode_blank(size - end))
        file.truncate(size)
    ran = run("dump", "commitlog", tmp_path, "--json")
    assert (ran.exit_code, len(ran.rows), len(ran.sentences)) == (1, 1, 1)
    assert " 50 bytes skipped" in ran.stderr


def test_two_damaged_places_make_two_sentences(golden_497: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden_497)
    places = [at(copy, number)["commitLogOffset"] for number in (5, 300)]
    for place in places:
        edit(copy, place + 4, b"\0\1\2\3")
    check_rest(run("dump", "commitlog", copy.store, "--json"), copy, set(places), sentences=2)


def test_damage_in_the_table_form_too(golden_497: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden_497)
    edit(copy, at(copy, 5)["commitLogOffset"] + 4, b"\0\1\2\3")
    ran = run("dump", "commitlog", copy.store)
    assert (ran.exit_code, len(ran.sentences)) == (1, 1)
    assert ran.stdout.splitlines()[-1].startswith(f"{len(copy.manifest['messages']) - 1} messages")


def test_damage_outside_of_the_range_is_not_met(golden_497: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden_497)
    place = at(copy, 30)["commitLogOffset"]
    edit(copy, place + 4, b"\0\1\2\3")
    assert run("dump", "commitlog", copy.store, "--json", "--limit", "30").exit_code == 0
    ran = run("dump", "commitlog", copy.store, "--json", "--from", str(place + 1))
    assert (ran.exit_code, ran.rows) == (0, expected_rows(copy)[31:])


def mutate(store: Path, edits: list[dict[str, Any]]) -> None:
    """Damage a copy as the manifest states."""
    for change in edits:
        path = store / change["file"]
        if change["op"] == "delete":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            continue
        data = bytearray(path.read_bytes())
        if change["op"] == "zero":
            data[change["offset"] : change["offset"] + change["length"]] = bytes(change["length"])
        else:
            data[change["offset"]] ^= change["value"]
        path.write_bytes(data)


@pytest.mark.parametrize("number", range(9))
def test_nothing_that_the_real_broker_recovers_is_missing(
    golden_550_crash: GoldenStore, golden_copy: Copy, run: Any, number: int
) -> None:
    copy = golden_copy(golden_550_crash)
    mutation = copy.manifest["mutations"][number]
    mutate(copy.store, mutation["edits"])
    ran = run("dump", "commitlog", copy.store, "--json")
    recovered_end = mutation["afterLoad"]["maxPhyOffset"]
    offsets = [row["commitLogOffset"] for row in ran.rows]
    kept = [row["commitLogOffset"] for row in expected_rows(copy) if row["commitLogOffset"] < recovered_end]
    assert offsets[: len(kept)] == kept
    assert ran.exit_code == (0 if recovered_end == copy.manifest["endOfLastRecord"] else 1)
    for kind in ("consumequeue", "index", "config"):
        assert run("dump", kind, copy.store).exit_code == 0


@pytest.mark.parametrize("kind", [CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD])
def test_a_body_that_cannot_be_inflated(tmp_path: Path, run: Any, kind: CompressionType) -> None:
    messages = [
        make_message("Bad", b"no such data", sys_flag=flags.with_compression(0, kind)),
        make_message("Good", b"fine"),
    ]
    log = bytearray()
    for message in messages:
        log += encode_message(message._replace(physical_offset=len(log)))
    (tmp_path / "commitlog").mkdir()
    segment = tmp_path / "commitlog" / f"{0:020d}"
    segment.write_bytes((log + encode_blank(4096 - len(log))).ljust(4096, b"\0"))
    for arguments in (["--json"], []):
        ran = run("dump", "commitlog", tmp_path, *arguments)
        assert ran.exit_code == 1
        assert len(ran.sentences) == 1
        assert ran.sentences[0].startswith(
            f"orbitlog: {segment}: physical offset 0 (byte 0 of the file): compressed body"
        )
    bad, good = run("dump", "commitlog", tmp_path, "--json").rows
    assert (bad["bodyLength"], bad["bodySha256"]) == (None, None)
    assert (good["bodyLength"], good["keys"], good["tags"]) == (4, None, None)
    assert good["msgId"] == good["offsetMsgId"]


# Wrong use


def test_a_file_of_another_kind_is_refused_with_the_right_command(golden: GoldenStore, run: Any) -> None:
    queue_file = next((golden.store / "consumequeue").rglob("0" * 20))
    index_file = next((golden.store / "index").iterdir())
    for kind, path in {
        "consumequeue": queue_file,
        "index": index_file,
        "checkpoint": golden.store / "checkpoint",
        "config": golden.store / "config" / "topics.json",
    }.items():
        ran = run("dump", "commitlog", path)
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert f"use `orbitlog dump {kind} {path}`" in ran.sentences[0]


def test_a_path_that_is_no_log(tmp_path: Path, run: Any) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "missing"):
        ran = run("dump", "commitlog", path)
        assert (ran.exit_code, len(ran.sentences)) == (2, 1)
        assert str(path) in ran.stderr
    assert run("dump", "commitlog").exit_code == 2


def test_unknown_settings_are_reported_and_bad_ones_refused(golden_497: GoldenStore, run: Any, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\nmappedFileSizeCommitLog=65536\n")
    ran = run("dump", "commitlog", golden_497.store, "--json", "--limit", "1", "--config", conf)
    assert (ran.exit_code, ran.sentences) == (0, [])
    ran = run("dump", "commitlog", golden_497.store, "--json", "--limit", "1", "--set", "brokerName=a")
    assert (ran.exit_code, ran.sentences) == (0, ["orbitlog: settings not used here: brokerName"])
    ran = run("dump", "commitlog", golden_497.store, "--set", "mappedFileSizeCommitLog=many")
    assert ran.exit_code == 2
    assert "mappedFileSizeCommitLog=many" in ran.stderr
    ran = run("dump", "commitlog", golden_497.store, "--json", "--set", "mappedFileSizeComitLog=65536")
    assert "did you mean mappedFileSizeCommitLog?" in ran.stderr
