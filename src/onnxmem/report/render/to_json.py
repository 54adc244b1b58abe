"""A report as JSON: the documents it was built from, whole, and what it says about them."""

from __future__ import annotations

import json
from dataclasses import asdict

from onnxmem.report.report import Report

SCHEMA = "onnxmem.report/1"


def render_json(report: Report) -> str:
    """One document; `onnxmem report` reads it again."""
    document = {
        "schema": SCHEMA,
        "title": report.title,
        "sections": [
            {
                "heading": section.heading,
                "summary": section.summary,
                "actions": [asdict(action) for action in section.actions],
                "story": list(section.story),
                "notes": list(section.notes),
            }
            for section in report.sections
        ],
        "documents": list(report.documents),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
