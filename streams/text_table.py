"""Tables of text: columns as wide as their widest cell."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[str] = ()) -> str:
    """The lines of a table. The columns with a heading of `left` are aligned on the left, numbers on the right."""
    table = [headings, *rows]
    widths = [max(len(line[column]) for line in table) for column in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if heading in left else cell.rjust(width)
            for heading, cell, width in zip(headings, line, widths, strict=True)
        ).rstrip()
        for line in table
    )
