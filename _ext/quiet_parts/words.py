"""Names with a hyphen stay on one line: never "Pre-" here and "LN." there."""

import re

from docutils import nodes

NAME = re.compile(
    r"\b(?:Pre-LN|Post-LN|Peri-LN|Pre-RMSNorm|GPT-[123]|QK-norm)\b[,.;:!?)]*"
)
# Where the words are a heading, code or somebody else's, they are left as they are.
OTHERS = nodes.title, nodes.literal, nodes.literal_block, nodes.raw, nodes.reference


def setup(app):
    app.connect("doctree-read", keep_names, priority=700)  # after the claims' marks


def keep_names(app, doctree):
    for text in list(doctree.findall(nodes.Text)):
        words = text.astext()
        if not NAME.search(words) or any(isinstance(p, OTHERS) for p in parents(text)):
            continue
        pieces, at = [], 0
        for found in NAME.finditer(words):
            name = nodes.inline("", found[0], classes=["qp-keep"])
            pieces += [nodes.Text(words[at : found.start()]), name]
            at = found.end()
        pieces.append(nodes.Text(words[at:]))
        text.parent.replace(text, [p for p in pieces if p.astext()])


def parents(node: nodes.Node):
    while node.parent is not None:
        node = node.parent
        yield node
