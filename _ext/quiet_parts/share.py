"""What other sites show of a page: its description, its card, data about the book.

The description is the sentence below a chapter's title; on another page, its first
sentences. `_templates/share.html` writes the tags. `cards` draws the picture.
"""

import json
import re

from docutils import nodes

from quiet_parts.addresses import address
from quiet_parts.cards import card_address, card_alt, chapter_of

LONGEST = 300  # characters of a description that other sites still show
LICENCE = "https://creativecommons.org/licenses/by/4.0/"


def setup(app):
    app.connect("html-page-context", add_share, priority=400)


def add_share(app, pagename, templatename, context, doctree):
    context["share"] = None
    url = address(app, pagename)
    if url is None or doctree is None:
        return
    chapter = chapter_of(pagename)
    title = app.env.titles[pagename].astext()
    context["share"] = {
        "site": app.config.html_title,
        "type": "website" if pagename == app.config.root_doc else "article",
        "title": title,
        "description": description(doctree, chapter is not None),
        "image": card_address(app, pagename),
        "alt": card_alt(app, pagename),
    }
    context["share"]["data"] = data(app, pagename, context["share"], chapter)


def description(doctree, is_chapter: bool) -> str:
    """A chapter's sentence below the title, or the page's first sentences."""
    quote = next(doctree.findall(nodes.block_quote), None)
    if is_chapter and quote is not None:
        return plain(quote)
    # TeX would stand there as it is written.
    paragraphs = (p for p in doctree.findall(nodes.paragraph) if not has_formula(p))
    texts = map(plain, paragraphs)
    text = next((t for t in texts if t.endswith((".", "?", "!"))), "")
    short = ""
    for sentence in re.split(r"(?<=[.?!]) ", text):
        if short and len(short) + len(sentence) >= LONGEST:
            break
        short = f"{short} {sentence}".strip()
    return short


def has_formula(node) -> bool:
    return next(node.findall(nodes.math), None) is not None


def plain(node) -> str:
    text = re.sub(r"</?[a-z][^>]*>", "", node.astext())  # HTML in Markdown
    return re.sub(r"\s+", " ", text).strip()


def data(app, pagename: str, share: dict, chapter: dict | None) -> str | None:
    """What schema.org calls a book, and its chapters, for search engines."""
    book = {
        "@type": "Book",
        "@id": f"{app.config.html_baseurl}#book",
        "name": app.config.html_title,
        "url": app.config.html_baseurl,
    }
    about = {
        "name": share["title"],
        "description": share["description"],
        "url": address(app, pagename),
        "image": share["image"],
        "inLanguage": app.config.language,
        "license": LICENCE,
        "isAccessibleForFree": True,
    }
    if pagename == app.config.root_doc:
        author = {"@type": "Organization", "name": app.config.author}
        told = {**about, **book, "author": author}
        told["bookFormat"] = "https://schema.org/EBook"
    elif chapter is not None:
        told = {"@type": ["Chapter", "LearningResource"], **about, "isPartOf": book}
        told["learningResourceType"] = "chapter with exercises"
        if chapter["number"]:
            told["position"] = chapter["number"]
    else:
        return None
    told = {"@context": "https://schema.org", **told}
    return json.dumps(told, ensure_ascii=False).replace("</", "<\\/")
