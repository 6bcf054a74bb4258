"""Explanations: which inputs decided the class of an image."""

from bnncert.explanation.explaining import explain
from bnncert.explanation.result import Explanation, ExplanationInterrupt

__all__ = ["Explanation", "ExplanationInterrupt", "explain"]
