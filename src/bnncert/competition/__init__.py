"""VNN-COMP categories: a list of models and queries, each answered in a process of its own."""

from bnncert.competition.answering import Answer, run_instance
from bnncert.competition.category import (
    Settings,
    certificate_path,
    finished_lines,
    run_category,
)
from bnncert.competition.instances import Instance, plain_or_packed, read_instances

__all__ = [
    "Answer",
    "Instance",
    "Settings",
    "certificate_path",
    "finished_lines",
    "plain_or_packed",
    "read_instances",
    "run_category",
    "run_instance",
]
