"""Explanations: which inputs decided the class of an image."""

from bnncert.explanation.explain import explain
from bnncert.explanation.result import Explanation, ExplanationInterrupt

__all__ = ["Explanation", "ExplanationInterrupt", "explain"]
