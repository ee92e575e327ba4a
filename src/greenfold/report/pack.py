"""Arrays as text, and pages as one file."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent


def packed(values: Any, kind: str = "f8") -> dict[str, Any]:
    """An array as base64, with its shape."""
    values = np.asarray(values)
    data = np.ascontiguousarray(values, dtype=f"<{kind}" if kind != "u1" else "u1")
    return {kind: base64.b64encode(data.tobytes()).decode(), "shape": list(values.shape)}


def filled(page: str, told: dict[str, Any], **scripts: tuple[str, ...]) -> str:
    """A page with the style, scripts from their files, and what it is told, put inside."""
    html = text_of(page)
    # HTML knows no JSON: a "<" of a name could end the script, or open a comment that never ends
    data = json.dumps(told, allow_nan=False).replace("<", "\\u003c")
    parts = {"style": text_of("page.css"), "data": data}
    parts |= {name: "\n".join(map(text_of, files)) for name, files in scripts.items()}
    for name, text in parts.items():
        before, after = html.split(f"/*{name}*/")
        html = before + text + after
    return html


def text_of(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
