"""What the site does with the cells of a chapter."""

import re
from html import escape
from pathlib import Path

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.transforms.post_transforms import SphinxPostTransform

from quiet_parts.settings import repository_file

JUDGE = re.compile(r"print\(check\.")
EXPORT = re.compile(r"#\s*\|\s*export[ \t]*(\n|$)")
FOLDS = {"source": "Code", "content": "Code and output", "output": "Output"}


def setup(app):
    app.connect("doctree-read", mark_opening)
    app.connect("doctree-read", mark_exports)
    app.add_post_transform(NameFolds)
    app.add_node(HideCodeCellNode, override=True, html=(open_fold, close_fold))


def mark_opening(app, doctree):
    """Name the summary and the badge line below a chapter's title, for their style."""
    section = next(doctree.findall(nodes.section), None)
    if section is None or not is_notebook(app):
        return
    for node in section.children[1:4]:
        if isinstance(node, nodes.block_quote):
            node["classes"].append("qp-lead")
        elif isinstance(node, nodes.paragraph) and is_emphasis(node):
            node["classes"].append("qp-badges")


def is_emphasis(paragraph) -> bool:
    return len(paragraph) == 1 and isinstance(paragraph[0], nodes.emphasis)


def is_notebook(app) -> bool:
    return str(app.env.doc2path(app.env.docname)).endswith(".ipynb")


def mark_exports(app, doctree):
    """Show which cells enter the package instead of the directive that says so."""
    module = re.sub(r"^\d+_", "", Path(app.env.docname).name)
    path = f"minigpt/{module}.py"
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") != "cell_code":
            continue
        for code in cell.findall(nodes.literal_block):
            text = code.astext()
            if (
                not EXPORT.match(text)
                or code.parent.get("nb_element") != "cell_code_source"
            ):
                continue
            text = EXPORT.sub("", text, count=1)
            code.rawsource, code.children = text, []
            code += nodes.Text(text)
            cell["classes"].append("qp-export")
            address = escape(repository_file(app, path), quote=True)
            note = f'enters <a href="{address}"><code>{path}</code></a>'
            code.parent.insert(
                0, nodes.raw("", f'<p class="qp-export-note">{note}</p>', format="html")
            )


class NameFolds(SphinxPostTransform):
    """Say on a folded cell what is inside.

    A check stands below the solution that it judges, which is folded, too: two folds
    with one name would be told apart by opening them only.
    """

    default_priority = 210  # after the cells are folded
    formats = ("html",)

    def run(self, **kwargs):
        for cell in self.document.findall(nodes.container):
            if cell.get("nb_element") == "cell_code":
                for fold in cell.findall(HideCodeCellNode):
                    fold["words"] = words_for(cell, fold)


def words_for(cell, fold) -> str:
    parts = [part.get("nb_element") for part in cell.findall(nodes.container)]
    kind = fold["prompt_show"].rsplit(" ", 1)[-1].removesuffix("s")
    words = FOLDS.get(kind, "Code") if "cell_code_output" in parts else "Code"
    if any(JUDGE.match(code.astext()) for code in cell.findall(nodes.literal_block)):
        words = "Its check"
    if "qp-export" in cell["classes"]:
        words += " that enters the package"
    return words


def open_fold(translator, node):
    words = node["words"]
    classes = " ".join(["qp-fold", *node["classes"]])
    translator.body.append(f'<details class="{classes}">\n<summary>{words}</summary>\n')


def close_fold(translator, node):
    translator.body.append("</details>\n")
