"""Many drawings of one kind as one drawing and what the others change in it.

The frames of an explorable differ in a few lines and labels. Kept whole they would be
half a megabyte; so the page holds the first, and for each place that is not the same in
all of them its values.
"""

import xml.etree.ElementTree as ET

__all__ = ["changes"]

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ET.register_namespace("", SVG)
ET.register_namespace("xlink", XLINK)

Place = tuple[tuple[int, ...], str]  # the way to an element, and what of it


def changes(drawings: list[str]) -> dict:
    """What turns the first drawing into each of the others.

    Args:
        drawings: `<svg>` elements as text.

    Returns:
        `places`: [way, what] for everything that changes: `way` has the number of a
        child at each step from the root, `what` is an attribute's name, `text`, or
        `inner` for all that is inside. `values`: for each place its different values.
        `frames`: for each drawing the index of its value at each place.
    """
    trees = [ET.fromstring(drawing) for drawing in drawings]
    found: dict[Place, list] = {}
    for tree in trees[1:]:
        compare(trees[0], tree, (), found)
    drop_inside(found)
    values, frames = [], [[] for _ in trees]
    for place in found:
        seen: dict[str | None, int] = {}
        for tree, frame in zip(trees, frames):
            frame.append(seen.setdefault(look(tree, place), len(seen)))
        values.append(list(seen))
    # A page sets `href` where the document has `xlink:href`; the plain one counts.
    places = [[way, what.rpartition("}")[2]] for way, what in found]
    return {"places": places, "values": values, "frames": frames}


def compare(one: ET.Element, two: ET.Element, way: tuple, found: dict) -> None:
    """Note in `found` where `two` is not as `one`."""
    for name in sorted({*one.attrib, *two.attrib}):
        if one.get(name) != two.get(name):
            found[way, name] = found.get((way, name))
    if [child.tag for child in one] != [child.tag for child in two]:
        found[way, "inner"] = None
        return
    if (one.text or "").strip() != (two.text or "").strip():
        found[way, "text"] = None
    for i, (a, b) in enumerate(zip(one, two)):
        compare(a, b, (*way, i), found)


def drop_inside(found: dict) -> None:
    """A place is not needed where all that surrounds it is written anew."""
    whole = {way for way, what in found if what == "inner"}
    for way, what in list(found):
        above = any(way[:n] in whole for n in range(len(way)))
        if above or (what == "text" and way in whole):
            del found[way, what]


def look(tree: ET.Element, place: Place) -> str | None:
    """The value of a place in one drawing; None for an attribute that is not there."""
    way, what = place
    for step in way:
        tree = tree[step]
    if what == "inner":
        return "".join(markup(child) for child in tree)
    return (tree.text or "") if what == "text" else tree.get(what)


def markup(element: ET.Element) -> str:
    """As it is written inside of an `<svg>` of a page, where no namespace is named."""
    text = ET.tostring(element, encoding="unicode")
    text = text.replace(f' xmlns="{SVG}"', "").replace(f' xmlns:xlink="{XLINK}"', "")
    return text.replace("xlink:href", "href")
