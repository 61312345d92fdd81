"""Adds up the items of a receipt, which comes on standard input."""

import re
import sys

AMOUNT = re.compile(r"(-?)([\d.,]+)\s*$")


def cents(text):
    """An amount in cents."""
    return round(float(text.replace(",", "")) * 100)


total = 0
for line in sys.stdin:
    found = AMOUNT.search(line)
    if found and not line.upper().startswith(("SUM", "TOTAL")):
        sign = -1 if found[1] else 1
        total += sign * cents(found[2])
sys.stdout.write(f"{total}\n")
