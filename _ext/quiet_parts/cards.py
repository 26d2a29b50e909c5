"""The picture that other sites show beside a link to a chapter: 1200 by 630 pixels.

Number, name, question, and a drawing that belongs to the chapter (`drawings`). A page
that is no chapter shows the book's card. Cards are kept between builds, by the digest
of all that they are drawn from; the same inputs give the same bytes.
"""

import hashlib
import re
from importlib.metadata import version
from pathlib import Path

from quiet_parts.outline import OUTLINE, read_outline
from quiet_parts.settings import ASSETS, ROOT

FOLDER = "_static/cards"
MODULES = ("cards", "card_layout", "canvas", "drawings")
PARTS = ("block", "generate", "gpt", "ladder")
PARTS += ("book/canvas", "book/diagram", "book/figures")
SOURCES = [
    OUTLINE,
    *(ROOT / "_ext" / "quiet_parts" / f"{n}.py" for n in MODULES),
    *(ROOT / "minigpt" / f"{name}.py" for name in PARTS),
    *sorted((ROOT / "minigpt" / "book" / "records").glob("plain_*.jsonl")),
    *(
        ROOT / "minigpt" / "book" / "records" / f"{n}.json"
        for n in ("clinic", "speech")
    ),
    ASSETS / "vendor/source-serif/files/source-serif-4-latin-wght-normal.woff2",
]
BOOK = {"number": None, "name": "The Quiet Parts"}
BOOK |= {"question": "What lets a deep transformer train?"}
DRAWN = {
    "text": "the characters of a text, and below each its target, the next one",
    "attention": "arcs from each token to the ones before it, of unlike strength",
    "mlp": "the same widening and narrowing at each of five tokens",
    "depth": "a row of layers in which the signal fades",
    "gpt": "embedding, four blocks, final norm and head on one stream",
    "train": "the training loss of three seeds",
    "ladder": "seven rungs, each the block with one part more",
    "generate": "the chances of the next character, the kept ones coloured",
    "clinic": "validation losses of sick runs, and of healthy ones",
    "index": "seven rungs, each the block with one part more",
}


def setup(app):
    app.connect("build-finished", write_cards)


def chapter_of(pagename: str) -> dict | None:
    """The outline's entry; a notebook of the appendix has no number."""
    found = re.fullmatch(r"chapters/(?:(\d+)_)?(\w+)", pagename)
    if found is None:
        return None
    entries = (c for c in read_outline()["chapters"] if c["name"] == found[2])
    return next(entries, {"number": None, "name": found[2]})


def card_name(pagename: str) -> str:
    chapter = chapter_of(pagename)
    return chapter["name"] if chapter else "index"


def card_address(app, pagename: str) -> str:
    return f"{app.config.html_baseurl}{FOLDER}/{card_name(pagename)}.png"


def card_alt(app, pagename: str) -> str:
    card = card_words(app, pagename)
    number = f"{card['number']:02} " if card["number"] else ""
    drawing = DRAWN.get(card_name(pagename), "the block with the part that it adds")
    return f"{number}{card['name']}: {card['question']} Drawing: {drawing}."


def card_words(app, pagename: str) -> dict:
    """What a card says: the chapter's own title, split into name and question."""
    chapter = chapter_of(pagename)
    if chapter is None:
        return BOOK
    name, _, question = app.env.titles[pagename].astext().partition(": ")
    question = question[:1].upper() + question[1:]
    return {"number": chapter["number"], "name": name, "question": question}


def write_cards(app, error):
    if error is not None or app.builder.name != "html" or not app.config.html_baseurl:
        return
    out, kept = Path(app.outdir) / FOLDER, Path(app.outdir).parent / "cards"
    for folder in (out, kept):
        folder.mkdir(parents=True, exist_ok=True)
    base = hashlib.sha256(f"{version('pillow')} {version('matplotlib')}".encode())
    for path in SOURCES:
        base.update(path.read_bytes())
    used = set()
    for page in sorted(app.env.found_docs):
        name, words = card_name(page), card_words(app, page)
        digest = base.copy()
        digest.update(repr(words).encode())
        store = kept / f"{name}-{digest.hexdigest()[:16]}.png"
        if not store.is_file():
            from quiet_parts.card_layout import draw_card  # slow to load, seldom needed

            part = store.with_suffix(".part")
            part.write_bytes(draw_card(name, words))
            part.replace(store)
        if store not in used:
            (out / f"{name}.png").write_bytes(store.read_bytes())
        used.add(store)
    for path in set(kept.glob("*.png")) - used:
        path.unlink()
