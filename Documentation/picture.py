#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draw what a command printed as a terminal window, in SVG.

Usage: make -s demo 2>&1 | Documentation/picture.py 'make demo' >Documentation/demo.svg
"""

import html
import sys
import textwrap

COLUMNS = 100
CHAR, LINE, MARGIN, BAR = 8.4, 19, 18, 34
COLOURS = {"$": "#7ee787", "==>": "#79c0ff", "": "#e6edf3"}


def lines(command, text):
    """(colour, line) of the screen, long lines wrapped."""
    yield COLOURS["$"], "$ " + command
    for line in text.splitlines():
        colour = COLOURS["==>" if line.startswith("==>") else ""]
        indent = " " * (len(line) - len(line.lstrip()))
        yield from ((colour, part) for part in textwrap.wrap(
            line, COLUMNS, subsequent_indent=indent,
            drop_whitespace=False) or [""])


def draw(screen):
    """The picture of some lines."""
    width = COLUMNS * CHAR + 2 * MARGIN
    height = BAR + len(screen) * LINE + MARGIN
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
           f'height="{height}" font-family="ui-monospace, Menlo, Consolas, '
           f'\'DejaVu Sans Mono\', monospace" font-size="14">')
    yield (f'<rect width="{width:.0f}" height="{height}" rx="8" '
           'fill="#0d1117"/>')
    for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        yield f'<circle cx="{20 + 20 * i}" cy="17" r="6" fill="{colour}"/>'
    for i, (colour, line) in enumerate(screen):
        yield (f'<text x="{MARGIN}" y="{BAR + (i + 1) * LINE - 5}" '
               f'fill="{colour}" xml:space="preserve">'
               f'{html.escape(line)}</text>')
    yield "</svg>"


def main():
    """Standard input to standard output."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    print("\n".join(draw(list(lines(sys.argv[1], sys.stdin.read())))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
