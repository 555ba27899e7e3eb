"""Ends the program when imported, as a script without a main guard does."""

import sys

sys.exit("this chip is not supported")
