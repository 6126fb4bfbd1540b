"""Java's filter classes and Orbitlog's give the same answers: to the table of the unit tests, and to random words."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable

import pytest

from orbitlog.formats.records.properties import NAME_END, PROPERTY_END
from tests.interop.harness.packages import ApachePackages
from tests.support.sql_answers import JAVA_ANSWERS, WORDS, our_answer
from tests.support.sql_cases import EXPRESSIONS, PROPERTIES

pytestmark = pytest.mark.interop

SEED = 20261115
RANDOM_EXPRESSIONS = 20_000


def java_answers(packages: ApachePackages, expressions: list[str]) -> list[str]:
    stored = ("".join(f"{name}{NAME_END}{value}{PROPERTY_END}" for name, value in each.items()) for each in PROPERTIES)
    lines = [*(f"P {text.encode().hex()}" for text in stored), *(f"E {each.encode().hex()}" for each in expressions)]
    command = [packages.java, "-cp", packages.class_path, "FilterAnswers"]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.splitlines()


def test_table_is_what_java_states(packages_of: Callable[[str], ApachePackages]) -> None:
    answers = java_answers(packages_of("5.5.0"), EXPRESSIONS)
    assert dict(zip(EXPRESSIONS, answers, strict=True)) == JAVA_ANSWERS


def test_random_words_mean_the_same(packages_of: Callable[[str], ApachePackages]) -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    expressions = [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(RANDOM_EXPRESSIONS)]
    answers = java_answers(packages_of("5.5.0"), expressions)
    different = [
        (e, theirs, our_answer(e)) for e, theirs in zip(expressions, answers, strict=True) if theirs != our_answer(e)
    ]
    assert not different[:10]
