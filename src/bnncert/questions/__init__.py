"""The questions that users ask; each is a claim, a strategy and the columns of its answer.

Nothing is imported here: the help of the commands shows these numbers.
"""

#: The longest time of one verification of `explain` and `faults`.
QUESTION_SECONDS = 10.0

#: Random points for the estimate of `count`, and the level of its interval.
SAMPLES, CONFIDENCE = 1000, 0.95
