"""A question with options that say, when opened, whether they are right and why.

It has the form of the quizzes at the end of the chapters, which are Markdown: each
option is a fold. So it needs no script and no kernel, is used with Tab and Enter, is
read aloud, and is whole on paper. A quiz that is made here keeps its answers out of the
notebook's source.
"""

import hashlib
import html
import re

__all__ = ["quiz"]

_LETTERS = "ABCDEFGH"


class _Quiz:
    def __init__(self, question: str, options: list[tuple[str, bool, str]]):
        self.question, self.options = question, options
        key = "\n".join([question, *(text for text, _, _ in options)])
        self.id = "quiz-" + hashlib.sha256(key.encode()).hexdigest()[:8]

    def __repr__(self) -> str:
        asked = [f"{self.question}"]
        for letter, (text, _, _) in zip(_LETTERS, self.options):
            asked.append(f"  {letter}  {text}")
        said = [
            f"  {letter}  {_word(right)} {why}"
            for letter, (_, right, why) in zip(_LETTERS, self.options)
        ]
        return "\n".join([*asked, "Answers:", *said])

    def _repr_html_(self) -> str:
        folds = "\n".join(
            # Of folds with one name a browser keeps one open.
            f'<details name="{self.id}"><summary>{_inline(text)}</summary>'
            f"<p>{_word(right)} {_inline(why)}</p></details>"
            for text, right, why in self.options
        )
        asked = f'<p id="{self.id}"><strong>{_inline(self.question)}</strong></p>'
        return (
            f'<div class="quiz" role="group" aria-labelledby="{self.id}">{asked}\n'
            f"{folds}</div>"
        )


def _word(right: bool) -> str:
    return "Right." if right else "Wrong."


def _inline(text: str) -> str:
    """Escape, and set `code`."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))


def quiz(question: str, options: list[tuple[str, bool, str]]) -> _Quiz:
    """A question that displays itself with its options, each a fold.

    Args:
        question: ends with a question mark. `code` between backticks is set as such.
        options: (what the reader may choose, whether it is right, why): two to eight.
            The explanation does not begin with "right" or "wrong"; that is put before.

    Raises:
        ValueError: if the question asks nothing, there are too few or too many options,
            none or more than one is right, two read alike, or one has no explanation.
    """
    options = [(text, right, " ".join(why.split())) for text, right, why in options]
    texts = [text for text, _, _ in options]
    if not question.endswith("?"):
        raise ValueError(f"question={question!r} must end with a question mark")
    if not 2 <= len(options) <= len(_LETTERS):
        raise ValueError(f"{len(options)} options; a question has two to eight")
    if sum(right for _, right, _ in options) != 1:
        raise ValueError(f"exactly one option of {question!r} must be right")
    if len(set(texts)) < len(texts):
        raise ValueError(f"two options of {question!r} read alike")
    for text, _, why in options:
        if len(why.split()) < 4:
            raise ValueError(f"option {text!r} needs an explanation, got {why!r}")
    return _Quiz(question, options)
