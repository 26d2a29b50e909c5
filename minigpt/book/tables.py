"""Small tables that scroll inside themselves on a phone."""

import html
import re

__all__ = ["power_of_ten", "table"]


class _Table:
    def __init__(self, header: list[str], rows: list[tuple], caption: str, measured):
        self.header, self.rows, self.caption = header, rows, caption
        self.measured = measured

    def __repr__(self) -> str:
        cells = [[str(c) for c in row] for row in [self.header, *self.rows]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.header))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths)) for row in cells]
        if self.measured:  # the word by which the tests know not to compare
            lines.insert(0, "measured:")
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        columns = list(zip(*self.rows)) or [()] * len(self.header)
        sides = [_side(column) for column in columns]

        def row(cells, tag):
            scope = ' scope="col"' if tag == "th" else ""
            inner = "".join(
                f'<{tag}{scope} style="text-align:{side}">{_typeset(c)}</{tag}>'
                for c, side in zip(cells, sides)
            )
            return f"<tr>{inner}</tr>"

        caption = (
            f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        )
        body = "\n".join(row(r, "td") for r in self.rows)
        label = html.escape(self.caption or ", ".join(self.header), quote=True)
        kind = "qp-table qp-measured" if self.measured else "qp-table"
        return (
            f'<div class="{kind}" role="region" aria-label="{label}" tabindex="0" '
            f'style="overflow-x:auto"><table>{caption}<thead>{row(self.header, "th")}'
            f"</thead><tbody>\n{body}\n</tbody></table></div>"
        )


_NUMBER = r"[+\-−]?\d[\d,]*(?:\.\d+)?"
_POWER = re.compile(rf"({_NUMBER})e([+-]\d+)")
_LIKE = re.compile(  # 2.24, −3.10, 12 %, 1.5×, 2.59 ± 0.02, 10⁻⁶, 7.8e-03
    rf"{_NUMBER}(?:e[+-]\d+)?[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]*(?:\s?[%×])?(?:\s?±\s?[\d.]+)?"
)
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _side(column: tuple) -> str:
    """Columns of numbers stand at the right, a missing one among them or not."""
    cells = [str(cell).strip() for cell in column]
    numbers = [cell for cell in cells if cell not in ("", "–", "—", "-")]
    return "right" if numbers and all(map(_LIKE.fullmatch, numbers)) else "left"


def _typeset(cell) -> str:
    """A cell as it is printed in a book: a real minus, powers of ten, no lone ±."""
    text = str(cell)
    if _LIKE.fullmatch(text.strip()):
        text = _POWER.sub(_power, text).replace("-", "−")
    text = re.sub(r"(?<=\d) ± (?=\d)", "\u00a0±\u00a0", text)
    return html.escape(text)


def _power(found: re.Match) -> str:
    power = power_of_ten(int(found[2]))
    return power if float(found[1]) == 1 else f"{found[1]} · {power}"


def power_of_ten(exponent: int) -> str:
    """A power of ten as it is printed in a book: 10⁻⁶ for -6."""
    return "10" + str(exponent).translate(_SUPERSCRIPT)


def table(
    header: list[str], rows: list[tuple], caption: str = "", *, measured: bool = False
) -> _Table:
    """A table that displays itself; give numbers as text, rounded for reading.

    Args:
        header: the columns' names.
        rows: as many cells each.
        caption: the message.
        measured: the cells hold losses of training runs or times, whose digits differ
            between machines. The book's tests then do not compare them; what the text
            concludes from them is printed as a verdict beside the table.

    Raises:
        ValueError: if a row has another number of cells than the header.
    """
    rows = [tuple(row) for row in rows]
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise ValueError(
                f"row {number} has {len(row)} cells, the header {len(header)}: {row!r}"
            )
    return _Table(list(header), rows, caption, measured)
