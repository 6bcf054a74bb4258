"""VNN-COMP categories: a list of models and queries, each answered in a process of its own."""

from bnncert.competition.answering import CompetitionAnswer, run_instance
from bnncert.competition.category import (
    CategorySettings,
    certificate_path,
    finished_lines,
    run_category,
)
from bnncert.competition.instances import CategoryInstance, plain_or_packed, read_instances

__all__ = [
    "CategoryInstance",
    "CategorySettings",
    "CompetitionAnswer",
    "certificate_path",
    "finished_lines",
    "plain_or_packed",
    "read_instances",
    "run_category",
    "run_instance",
]
