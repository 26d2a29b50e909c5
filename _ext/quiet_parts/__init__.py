"""The book's own Sphinx extension: its look, its marks and its figures.

`settings`  repository address and vendored libraries, checked before anything is built
`cells`     code cells that enter the package, hidden code, the lines below a title
`outline`   the ladder, the chapter list and the navigation, from `_ext/outline.yml`
`glossary`  the terms in English and Korean
`claims`    the marked sentences, and the page that lists their evidence
`reading`   the time that a chapter takes to read
`sources`   the list of references, with the places that use them
`formulas`  formulas as drawings, with words for screen readers
`finish`    what is left to mend in the finished pages
"""

from quiet_parts import (
    cells,
    claims,
    finish,
    formulas,
    glossary,
    outline,
    settings,
    sources,
)

__all__ = ["setup"]


def setup(app):
    for part in (settings, cells, outline, glossary, sources, claims, formulas, finish):
        part.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
