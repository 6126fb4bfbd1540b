"""Where reading of topics starts and ends, over all stores: marks, offsets and times become offsets of queues."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from orbitlog.pipeline.sources.named_stores import OptionError
from orbitlog.pipeline.sources.queue_scan import DataLoss
from orbitlog.pipeline.sources.read_plan import StoreShape, shape_of
from orbitlog.pipeline.sources.source_options import Position, TopicOptions
from orbitlog.pipeline.sources.store_snapshot import Bounds, StoreLook, check_topics
from orbitlog.pipeline.sources.topic_offsets import EARLIEST, LATEST, Offsets, QueueKey

_SHOWN_MAX = 3


class TopicBounds:
    """One look at the subscribed queues of all stores."""

    def __init__(self, options: TopicOptions, looks: Mapping[str, StoreLook]) -> None:
        self._options = options
        self._looks = looks
        check_topics(list(looks.values()), options.subscription)
        self.queues: dict[QueueKey, Bounds] = {
            key: look.bounds(key.topic, key.queue_id)
            for look in looks.values()
            for key in look.queue_keys(options.subscription)
        }

    @property
    def earliest(self) -> Offsets:
        return {key: bounds.earliest for key, bounds in self.queues.items()}

    @property
    def latest(self) -> Offsets:
        return {key: bounds.latest for key, bounds in self.queues.items()}

    @property
    def shapes(self) -> dict[str, StoreShape]:
        return {
            name: shape_of(look.store, look.segment_bytes, look.queue_file_bytes) for name, look in self._looks.items()
        }

    def start(self) -> Offsets:
        return self._resolve(self._options.start, "starting")

    def end(self) -> Offsets:
        return self._resolve(self._options.end, "ending")

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int:
        return self._looks[key.broker_name].offset_at(key.topic, key.queue_id, timestamp_ms)

    def sizes_from(self, key: QueueKey, start: int, stop: int, bytes_max: int) -> list[int]:
        return self._looks[key.broker_name].sizes_from(key.topic, key.queue_id, start, stop, bytes_max)

    def _resolve(self, position: Position, which: str) -> Offsets:
        if position.mark is not None:
            return self.earliest if position.mark == EARLIEST else self.latest
        if position.timestamp_ms is not None:
            times = dict.fromkeys(self.queues, position.timestamp_ms)
            return {key: self._at(key, time_ms, which) for key, time_ms in times.items()}
        given = position.offsets or position.timestamps_ms
        option = f"{which}Offsets" + ("" if position.offsets else "ByTimestamp")
        self._check_all_given(given, option)
        if position.timestamps_ms:
            return {key: self._at(key, given[key], which) for key in self.queues}
        marks = {EARLIEST: self.earliest, LATEST: self.latest}
        return {key: marks[given[key]][key] if given[key] in marks else given[key] for key in self.queues}

    def _check_all_given(self, given: Offsets, option: str) -> None:
        unknown = [key for key in given if key not in self.queues]
        if unknown:
            raise OptionError(f"{option} names {_shown(unknown)}, which is not read: it is not there or not subscribed")
        if missing := [key for key in self.queues if key not in given]:
            raise OptionError(f"{option} leaves out {_shown(missing)}; give each queue an offset, -2 for the earliest")

    def _at(self, key: QueueKey, timestamp_ms: int, which: str) -> int:
        found = self.offset_at(key, timestamp_ms)
        bounds = self.queues[key]
        is_too_late = which == "starting" and found == bounds.latest
        if is_too_late and not self._options.too_late_is_latest:
            raise OptionError(
                f"{key} has no message stored at or after {timestamp_ms} ms;"
                " startingOffsetsByTimestampStrategy=latest starts at its end then"
            )
        return found

    def without_lost(self, start: Mapping[QueueKey, int], end: Offsets) -> tuple[Offsets, Offsets]:
        """Return the range as far as it is still there; what is lost is an error unless the user wants to go on.

        Only what lies outside of a queue's bounds is lost: offsets that a filter or a hole leaves out are not.
        """
        kept_start, kept_end = dict(start), dict(end)
        for key, stop in end.items():
            bounds = self.queues.get(key)
            first = start.get(key, 0)
            if bounds is None:
                if first < stop:
                    self._lost(f"{key} is not there any more, offsets {first} to {stop} were asked for")
                kept_end[key] = kept_start[key] = stop
                continue
            if first < stop and first < bounds.earliest and key in start:
                self._lost(f"{key} starts at {bounds.earliest} by now, offset {first} was asked for")
            if max(first, stop) > bounds.latest:
                self._lost(f"{key} ends at {bounds.latest}, offset {max(first, stop)} was asked for")
            kept_end[key] = min(stop, bounds.latest)
            kept_start[key] = min(max(first, bounds.earliest), kept_end[key])
        return kept_start, kept_end

    def _lost(self, sentence: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{sentence}; option failOnDataLoss=false reads what there is")
        warnings.warn(f"data was lost: {sentence}", stacklevel=2)


def _shown(keys: list[QueueKey]) -> str:
    more = len(keys) - _SHOWN_MAX
    return ", ".join(map(str, sorted(keys)[:_SHOWN_MAX])) + (f" and {more} more" if more > 0 else "")


@contextmanager
def look_at_topics(options: TopicOptions) -> Iterator[TopicBounds]:
    """Look at all stores; the files stay open for searches while the block lasts."""
    with ExitStack() as open_looks:
        looks = {store.broker_name: open_looks.enter_context(StoreLook(store)) for store in options.stores}
        yield TopicBounds(options, looks)
