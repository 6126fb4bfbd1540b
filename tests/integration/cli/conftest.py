"""Fixtures that run the command line inside the test process."""

from tests.support.cli_run import run as run
