"""The answers as JUnit XML, which CI systems show as tests: GitLab, Jenkins, Azure, Buildkite and others."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from onnxmem.checking.checked import FAILED, OK, Checked
from onnxmem.checking.checking import Checking

# What XML 1.0 cannot hold, not even escaped: control characters and halves of surrogate pairs.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(checking: Checking) -> str:
    """One test suite, with a test case for each check."""
    wrong = [each.verdict for each in checking.checks if each.verdict != OK]
    counts = {
        "tests": str(len(checking.checks)),
        "failures": str(sum(verdict != FAILED for verdict in wrong)),
        "errors": str(wrong.count(FAILED)),
        "skipped": "0",
        "time": _seconds(sum(each.seconds for each in checking.checks)),
    }
    root = ElementTree.Element("testsuites", {"name": "onnxmem", **counts})
    # GitLab and Jenkins want a time without a zone.
    when = checking.date.partition("+")[0]
    suite = ElementTree.SubElement(root, "testsuite", {"name": "onnxmem check", "timestamp": when, **counts})
    for each in checking.checks:
        _case(suite, each)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, checked: Checked) -> None:
    names = {"classname": f"onnxmem.{checked.key.model}", "name": _name(checked)}
    attributes = {**{key: _clean(value) for key, value in names.items()}, "time": _seconds(checked.seconds)}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    sizes = (("bytes", checked.size), ("budget_bytes", checked.case.budget), ("figure", checked.case.figure))
    properties = ElementTree.SubElement(case, "properties")
    for name, value in sizes:
        if isinstance(value, int | str):
            ElementTree.SubElement(properties, "property", {"name": name, "value": str(value)})
    if checked.verdict == OK:
        ElementTree.SubElement(case, "system-out").text = _clean(checked.sentence)
        return
    kind = "error" if checked.verdict == FAILED else "failure"
    text = _clean(checked.sentence)
    ElementTree.SubElement(case, kind, {"message": text, "type": checked.verdict}).text = _clean(
        "\n".join(part for part in (checked.sentence, checked.hint and f"hint: {checked.hint}") if part)
    )


def _name(checked: Checked) -> str:
    """What tells it from the other checks of its model, and is the same in the next run."""
    rest = checked.key.label.removeprefix(f"{checked.key.model}, ")
    parts = [checked.case.name, rest, checked.case.figure if checked.case.figure != "peak" else ""]
    return ", ".join(part for part in parts if part)


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
