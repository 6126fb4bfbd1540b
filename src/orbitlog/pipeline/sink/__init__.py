"""Sink: writes DataFrames into topics of a cluster, with recognised repetitions, transactions and failed rows."""
