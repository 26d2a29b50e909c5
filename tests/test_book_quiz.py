"""book.quiz: folds that need no script, one right option, and words for a console."""

import re
from html.parser import HTMLParser

import pytest

from minigpt import book

OPTIONS = [
    ("It is `x`", False, "It is not, because x is 2 < 3."),
    ("It is y & z", True, "It is, because of <b>this</b> and `that`."),
]


class Folds(HTMLParser):
    """The elements, and whether they are closed."""

    def __init__(self):
        super().__init__()
        self.opened, self.tags = [], []

    def handle_starttag(self, tag, attributes):
        self.opened.append(tag)
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.opened.pop() == tag


def parsed(markup):
    folds = Folds()
    folds.feed(markup)
    assert not folds.opened
    return folds.tags


def test_each_option_is_a_fold_and_one_is_open_at_a_time():
    tags = parsed(book.quiz("What is it?", OPTIONS)._repr_html_())
    folds = [attributes for tag, attributes in tags if tag == "details"]
    assert len(folds) == 2 and len({fold["name"] for fold in folds}) == 1
    assert not any("open" in fold for fold in folds)
    assert [tag for tag, _ in tags].count("summary") == 2
    assert "script" not in [tag for tag, _ in tags]


def test_question_names_the_group():
    markup = book.quiz("What is it?", OPTIONS)._repr_html_()
    tags = parsed(markup)
    (group,) = (a for tag, a in tags if tag == "div")
    assert group["role"] == "group"
    assert f'id="{group["aria-labelledby"]}"><strong>What is it?' in markup


def test_answers_say_first_whether_they_are_right_and_text_is_escaped():
    markup = book.quiz("What is it?", OPTIONS)._repr_html_()
    assert "<p>Wrong. It is not, because x is 2 &lt; 3.</p>" in markup
    assert "<p>Right. It is, because of &lt;b&gt;this&lt;/b&gt;" in markup
    assert "<code>x</code>" in markup and "y &amp; z" in markup


def test_two_quizzes_of_a_page_do_not_close_each_other():
    one, two = (book.quiz(q, OPTIONS)._repr_html_() for q in ("One?", "Two?"))
    names = [set(re.findall(r'(?:id|name)="([^"]+)"', m)) for m in (one, two)]
    assert names[0] and not names[0] & names[1]
    assert one == book.quiz("One?", OPTIONS)._repr_html_()


def test_a_console_shows_options_before_answers():
    lines = repr(book.quiz("What is it?", OPTIONS)).splitlines()
    assert lines[:3] == ["What is it?", "  A  It is `x`", "  B  It is y & z"]
    assert lines[3] == "Answers:" and lines[5].startswith("  B  Right. It is")


@pytest.mark.parametrize(
    ("question", "options", "message"),
    [
        ("It is.", OPTIONS, "question mark"),
        ("What?", OPTIONS[:1], "two to eight"),
        ("What?", OPTIONS * 5, "two to eight"),
        ("What?", [OPTIONS[0], ("b", False, "It is not that.")], "exactly one"),
        ("What?", [OPTIONS[1], ("b", True, "It is that too.")], "exactly one"),
        ("What?", [OPTIONS[1], ("It is y & z", False, "It is not this.")], "alike"),
        ("What?", [OPTIONS[1], ("b", False, "No.")], "needs an explanation"),
    ],
)
def test_quiz_that_teaches_nothing_is_refused(question, options, message):
    with pytest.raises(ValueError, match=message):
        book.quiz(question, options)
