"""Has nothing to do with us; its metadata are spoilt after installation."""

ANSWER = 42
