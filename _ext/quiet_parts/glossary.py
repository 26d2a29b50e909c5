"""Terms in English and Korean, written as YAML in the page and set as a description list.

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

KEYS = {"term", "korean", "ours", "chapter", "text"}


def setup(app):
    app.add_directive("terms", TermsDirective)


class TermsDirective(SphinxDirective):
    has_content = True

    def run(self):
        entries = yaml.safe_load("\n".join(self.content))
        for entry in entries:
            if not {"term", "text"} <= entry.keys() <= KEYS:
                raise self.error(f"a term needs term and text, and knows {KEYS}: {entry}")
        listing = nodes.definition_list(classes=["qp-terms"])
        for entry in sorted(entries, key=lambda e: e["term"].lower()):
            listing += self.item(entry)
        return [listing]

    def item(self, entry: dict) -> nodes.definition_list_item:
        term = nodes.term("", entry["term"])
        term["ids"].append(nodes.make_id(f"term-{entry['term']}"))
        if entry.get("korean"):
            korean = f' <span class="qp-korean" lang="ko">{escape(entry["korean"])}</span>'
            term += nodes.raw("", korean, format="html")
        definition = nodes.definition()
        self.parse(entry["text"], definition)
        if entry.get("ours"):
            self.parse(f"In the code: {entry['ours']}", definition, "qp-ours")
        return nodes.definition_list_item("", term, definition)

    def parse(self, text: str, parent: nodes.Element, *classes: str) -> None:
        start = len(parent)
        lines = StringList(text.splitlines(), source=self.get_source_info()[0])
        self.state.nested_parse(lines, self.content_offset, parent)
        for node in parent[start:]:
            node["classes"] += classes
