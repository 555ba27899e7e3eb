"""Takes long to import, which nobody but its users may notice."""

import time

time.sleep(600)
