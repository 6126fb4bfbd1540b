"""A strict parser of Prometheus text 0.0.4 and OpenMetrics: anything that the formats do not allow is an error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_HEAD = re.compile(rf"# (HELP|TYPE) ({_NAME}) (.*)")
_SUFFIXES = {
    "counter": ("",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}
_OPEN_SUFFIXES = {**_SUFFIXES, "counter": ("_total",), "info": ("_info",)}

Labels = tuple[tuple[str, str], ...]


@dataclass
class ParsedFamily:
    """A family as its text states it; samples by name and labels in the order of the text."""

    kind: str = ""
    help: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    @property
    def label_names(self) -> set[str]:
        return {name for _, labels in self.samples for name, _ in labels} - {"le"}

    @property
    def bounds(self) -> list[str]:
        found = [dict(labels)["le"] for name, labels in self.samples if name.endswith("_bucket")]
        return list(dict.fromkeys(found))

    def value(self, **labels: str) -> float:
        """Return the sum of the series with these labels."""
        wanted = set(labels.items())
        return sum(value for (_, given), value in self.samples.items() if wanted <= set(given))


def parse_exposition(text: str, *, is_open_metrics: bool = False, needs_help: bool = True) -> dict[str, ParsedFamily]:
    """Return the families by name; Apache's broker writes one of them without help."""
    assert text.endswith("\n"), "the last line has an end"
    lines = text[:-1].split("\n")
    if is_open_metrics:
        assert lines.pop() == "# EOF", "OpenMetrics ends with a mark"
    families: dict[str, ParsedFamily] = {}
    name = ""
    for line in lines:
        if head := _HEAD.fullmatch(line):
            name = head[2]
            family = families.setdefault(name, ParsedFamily())
            assert not family.samples, f"samples of {name} in two places"
            field_name = "help" if head[1] == "HELP" else "kind"
            assert not getattr(family, field_name), f"a second line {head[1]} of {name}"
            setattr(family, field_name, head[3])
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample is not None, line
        family = families[name]
        suffixes = (_OPEN_SUFFIXES if is_open_metrics else _SUFFIXES)[family.kind]
        assert sample[1] in [name + suffix for suffix in suffixes], line
        key = sample[1], _labels(sample[2] or "")
        assert key not in family.samples, f"twice: {line}"
        family.samples[key] = float(sample[3])
    for name, family in families.items():
        assert family.kind and (family.help or not needs_help) and family.samples, name
        if family.kind == "histogram":
            _check_histogram(name, family)
    return families


def _labels(text: str) -> Labels:
    position, found = 0, []
    while position < len(text):
        match = _LABEL.match(text, position)
        assert match is not None, text
        found.append((match[1], match[2]))
        position = match.end()
    assert len({name for name, _ in found}) == len(found), f"a label twice: {text}"
    return tuple(found)


def _check_histogram(name: str, family: ParsedFamily) -> None:
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, labels), value in family.samples.items():
        if sample == f"{name}_bucket":
            rest = tuple(pair for pair in labels if pair[0] != "le")
            series.setdefault(rest, []).append((float(dict(labels)["le"].replace("+Inf", "inf")), value))
    for labels, buckets in series.items():
        assert buckets == sorted(buckets), f"{name}: bounds and counts grow"
        assert [count for _, count in buckets] == sorted(count for _, count in buckets), f"{name}: counts grow"
        assert buckets[-1][0] == float("inf") and buckets[-1][1] == family.samples[f"{name}_count", labels]
        assert (f"{name}_sum", labels) in family.samples
