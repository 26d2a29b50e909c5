"""Terms in English and Korean: YAML in the page, set as a description list.

```{terms}
- term: residual connection
  korean: 잔차 연결
  ours: "`x + f(x)`"
  chapter: residual
  text: One sentence; Markdown and $math$ are set.
```
"""

from html import escape

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from quiet_parts.outline import OUTLINE, read_outline

KEYS = {"term", "korean", "ours", "chapter", "text"}


def setup(app):
    app.add_directive("terms", TermsDirective)


class TermsDirective(SphinxDirective):
    has_content = True

    def run(self):
        entries = yaml.safe_load("\n".join(self.content))
        for entry in entries:
            if not {"term", "text"} <= entry.keys() <= KEYS:
                raise self.error(
                    f"a term needs term and text, and knows {KEYS}: {entry}"
                )
        self.env.note_dependency(str(OUTLINE))
        listing = nodes.definition_list(classes=["qp-terms"])
        for entry in sorted(entries, key=lambda e: e["term"].lower()):
            listing += self.item(entry)
        return [listing]

    def item(self, entry: dict) -> nodes.definition_list_item:
        term = nodes.term("", entry["term"])
        term["ids"].append(nodes.make_id(f"term-{entry['term']}"))
        if entry.get("korean"):
            korean = (
                f' <span class="qp-korean" lang="ko">{escape(entry["korean"])}</span>'
            )
            term += nodes.raw("", korean, format="html")
        definition = nodes.definition()
        self.parse(entry["text"], definition)
        notes = [entry["ours"]] if entry.get("ours") else []
        notes += [self.chapter(entry["chapter"])] if entry.get("chapter") else []
        if notes:
            self.parse(" · ".join(notes), definition, "qp-ours")
        return nodes.definition_list_item("", term, definition)

    def chapter(self, name: str) -> str:
        """The chapter that builds it, linked when it is written."""
        number = next(
            (c["number"] for c in read_outline()["chapters"] if c["name"] == name), None
        )
        if number is None:
            raise self.error(f"no chapter is called {name!r} in {OUTLINE.name}")
        page = f"chapters/{number:02}_{name}"
        words = f"chapter {number}"
        return f"[{words}]({page}.ipynb)" if page in self.env.found_docs else words

    def parse(self, text: str, parent: nodes.Element, *classes: str) -> None:
        start = len(parent)
        lines = StringList(text.splitlines(), source=self.get_source_info()[0])
        self.state.nested_parse(lines, self.content_offset, parent)
        for node in parent[start:]:
            node["classes"] += classes
