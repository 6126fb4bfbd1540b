"""Setting: one key of a configuration file with its parser, default and help, and the parsers that servers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from orbitlog.errors import FormatError, OrbitlogError
from orbitlog.formats.java import INT_MAX
from orbitlog.settings.secret_settings import shown_value

T = TypeVar("T")


class AdvisedText(str):
    """A sentence that states a problem and, after a semicolon, the advice; both remain fields for reports."""

    problem: str
    advice: str

    def __new__(cls, problem: str, advice: str = "") -> AdvisedText:
        text = super().__new__(cls, f"{problem}; {advice}" if advice else problem)
        text.problem, text.advice = problem, advice
        return text

    @classmethod
    def of(cls, text: str) -> AdvisedText:
        """Return the text itself, or one without advice for a plain string."""
        return text if isinstance(text, cls) else cls(text)

    def after(self, start: str) -> AdvisedText:
        """Return the sentence with `start` before it."""
        return AdvisedText(start + self.problem, self.advice)


class InvalidValue(ValueError):
    """A text that a parser refuses, with advice."""

    def __init__(self, problem: str, advice: str) -> None:
        self.sentence = AdvisedText(problem, advice)
        super().__init__(self.sentence)


class SettingError(OrbitlogError):
    """A setting that is invalid: the sentence names its key, value and source; `key` is None for several settings."""

    def __init__(self, sentence: str, *, key: str | None = None) -> None:
        super().__init__(sentence)
        self.sentence = AdvisedText.of(sentence)
        self.key = key


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One setting: its Java key, parser, default and help."""

    key: str
    parse: Callable[[str], T]
    default: T
    help: str

    def check(self, text: str, source: str) -> T:
        """Return the value of a text; raise a `SettingError` that names key, text and source if it is invalid."""
        try:
            return self.parse(text)
        except (FormatError, ValueError) as error:
            shown = shown_value(self.key, text)
            if isinstance(error, InvalidValue):
                problem = error.sentence.after(f"{shown!r} ")
            else:
                problem = AdvisedText(error.problem if isinstance(error, FormatError) else f"{shown!r} {error}")
            raise SettingError(problem.after(f"{self.key}={shown} from {source}: "), key=self.key) from None


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser that accepts these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"is not one of {', '.join(words)}")
        return text

    return parse


def number_between(low: int, high: int = INT_MAX) -> Callable[[str], int]:
    """Return a parser of whole numbers in a range."""

    def parse(text: str) -> int:
        if not text.isdecimal() or len(text) > 10 or not low <= int(text) <= high:
            raise ValueError(f"is not a whole number from {low} to {high}")
        return int(text)

    return parse


parse_count = number_between(1)


def parse_truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return text.lower() == "true"


def split_assignment(text: str) -> tuple[str, str]:
    """Split `key=value`."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        example = "write for example mappedFileSizeCommitLog=65536"
        raise SettingError(AdvisedText(f"{text!r} is not key=value", example))
    return key.strip(), value.strip()
