"""The book's own Sphinx extension: its look, its marks and its figures.

`settings`  repository address and vendored libraries, checked before anything is built
`cells`     code cells that enter the package, hidden code, the lines below a title
`outline`   the chapter list and the navigation, from `_ext/outline.yml`
`ladder`    the ladder of the landing page, with what was measured
`counts`    numbers of the book that pages state
`glossary`  the terms in English and Korean
`claims`    the marked sentences, and the page that lists their evidence
`reading`   the time that a chapter takes to read
`status`    what the last run of the tests found
`sources`   the list of references, with the places that use them
`words`     names with a hyphen that stay on one line
`notes`     citations and terms that open in place
`onepage`   the quiet parts on one page
`formulas`  formulas as drawings, with words for screen readers
`addresses` canonical addresses, sitemap.xml, robots.txt, 404.html
`share`     what other sites show of a page: description, card, data about the book
`cards`     the pictures that `share` names, one for each chapter
`feed`      the page of changes and feed.xml, from CHANGELOG.md
`search`    the text that the search page searches
`finish`    what is left to mend in the finished pages
`styles`    one style sheet, of what the pages use
"""

from quiet_parts import (
    addresses,
    cards,
    cells,
    claims,
    counts,
    feed,
    finish,
    formulas,
    glossary,
    ladder,
    notes,
    onepage,
    outline,
    search,
    settings,
    share,
    sources,
    status,
    styles,
    words,
)

__all__ = ["setup"]

PARTS = (
    settings,
    cells,
    outline,
    ladder,
    counts,
    glossary,
    sources,
    claims,
    words,
    notes,
    onepage,
    formulas,
    addresses,
    share,
    cards,
    feed,
    status,
    search,
    finish,
    styles,
)


def setup(app):
    for part in PARTS:
        part.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
