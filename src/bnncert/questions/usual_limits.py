"""What questions take if the caller states nothing else.

Nothing is imported here: the help of the commands shows these numbers.
"""

from __future__ import annotations

#: The longest time of one verification of `explain` and `faults`.
QUESTION_SECONDS = 10.0

#: Random points for the estimate of `count`, and the level of its interval.
SAMPLES, CONFIDENCE = 1000, 0.95
