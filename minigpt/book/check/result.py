"""What a check returns: a verdict that displays itself, as text and on a page."""

import html
import re
import textwrap
from dataclasses import dataclass

__all__ = ["NOT_WRITTEN", "Result"]

NOT_WRITTEN = "not written"


@dataclass(frozen=True, repr=False)
class Result:
    """The verdict of a check.

    Args:
        part: what was judged, "RMSNorm" say.
        passed: whether every mechanism held.
        mechanism: the first that did not hold; "all" if every one did; "not written"
            where there is no answer yet.
        sentence: what is wrong, in words; code stands between backticks.
        rows: label and text: the input, what was expected, what came.
        notes: further remarks, one sentence each.
    """

    part: str
    passed: bool
    mechanism: str
    sentence: str
    rows: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """Everything the check has to say below its first line, as text."""
        return "\n".join([self.sentence, *self._lines(), *self.notes])

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        lines = [self._head(), *_wrapped(self.sentence), *self._lines()]
        for note in self.notes:
            lines += _wrapped(note)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        edge = (
            "var(--qp-muted, #808890)"
            if self.mechanism == NOT_WRITTEN
            else "var(--qp-norm, #2a8f6d)"
            if self.passed
            else "var(--qp-amber, #b07a1e)"
        )
        head = html.escape(self._head())
        texts = "".join(
            f'<p style="margin:.3em 0">{_inline(text)}</p>'
            for text in (self.sentence, *self.notes)
        )
        return (
            f'<div class="qp-check" role="group" aria-label="Check. {head}" '
            f'style="border-left:3px solid {edge};padding:.1em 0 .1em .9em;'
            f'margin:.3em 0;color:inherit"><p style="margin:.1em 0">'
            f"<strong>{head}</strong></p>{texts}{self._table()}</div>"
        )

    def _head(self) -> str:
        if self.passed:
            return f"{self.part}: right."
        if self.mechanism == NOT_WRITTEN:
            return f"{self.part}: not written yet."
        return f"{self.part}: not yet. Look at: {self.mechanism}."

    def _lines(self) -> list[str]:
        width = max((len(label) for label, _ in self.rows), default=0)
        return [f"  {label.ljust(width)}  {text}" for label, text in self.rows]

    def _table(self) -> str:
        if not self.rows:
            return ""
        cell = 'style="text-align:left;padding:.1em 1.2em .1em 0;white-space:pre"'
        rows = "".join(
            f'<tr><th scope="row" {cell}>{html.escape(label)}</th>'
            f"<td {cell}><code>{html.escape(text)}</code></td></tr>"
            for label, text in self.rows
        )
        return (
            f'<div role="region" aria-label="{html.escape(self.part)}: numbers" '
            f'tabindex="0" style="overflow-x:auto"><table>{rows}</table></div>'
        )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 80, break_long_words=False, break_on_hyphens=False)


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
