"""May this SVG be put into a page as it is? Only drawings are: no scripts, no links, nothing from elsewhere."""

from __future__ import annotations

import re
from xml.etree import ElementTree

_SPACE = "{http://www.w3.org/2000/svg}"
_TAGS = {"svg", "g", "path", "text", "title", "tspan", "rect", "line", "circle", "defs", "clipPath"}
_ID = re.compile(r'\b(id="|url\(#)')


class NotADrawing(ValueError):
    """Something in the SVG is not part of a drawing."""


def embeddable(svg: str, prefix: str) -> str:
    """The drawing, with its identifiers under a prefix: several of them in one page must not share any.

    The converter escapes names; this is the second lock, in case it one day does not.
    """
    for element in ElementTree.fromstring(svg).iter():
        tag = element.tag.removeprefix(_SPACE)
        if tag not in _TAGS:
            raise NotADrawing(f"<{tag}> is not part of a drawing")
        for name in element.attrib:
            if name.lower().startswith("on") or name.endswith("href"):
                raise NotADrawing(f"<{tag} {name}> is not part of a drawing")
    # The page says what is to be seen; a screen reader should not spell out the axes after that.
    return _ID.sub(rf"\1{prefix}", svg).replace("<svg", '<svg aria-hidden="true"', 1)
