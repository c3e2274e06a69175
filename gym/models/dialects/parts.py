"""Parts of a message's content, between the dialects.

Text, images (by URL, or as base64 in a data URL), files and audio. What Chat Completions has no part
for is refused with where it stands. Markers for caches are left out: they say nothing to the model.
"""

from typing import Any, cast

from gym.models.dialects.errors import UnsupportedRequest
from gym.models.dialects.fields import fields_of, list_of

Part = dict[str, Any]
Content = str | list[Part]

_TEXT = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})


def parts_at(value: Any, where: str) -> list[Part]:
    """`value` as a list of objects. Raises UnsupportedRequest for anything else."""
    if not isinstance(value, list):
        raise UnsupportedRequest(where, "must be text or a list")
    for index, part in enumerate(cast(list[Any], value)):
        if not isinstance(part, dict):
            raise UnsupportedRequest(f"{where}[{index}]", "must be an object")
    return cast(list[Part], value)


def text_of(part: Part) -> str:
    """The text of a part, "" if it has none."""
    text = part.get("text")
    return text if isinstance(text, str) else ""


def simplest(parts: list[Part]) -> Content:
    """Chat content of these parts: bare text where there is nothing but one text."""
    if not parts:
        return ""
    return text_of(parts[0]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def responses_content(content: Any, where: str) -> Content:
    """A Responses item's content, or a tool's output, as Chat content."""
    if isinstance(content, str):
        return content
    return simplest([_from_responses(part, f"{where}[{index}]") for index, part in enumerate(parts_at(content, where))])


def _from_responses(part: Part, where: str) -> Part:
    kind = part.get("type")
    if kind in _TEXT:
        return {"type": "text", "text": text_of(part)}
    if kind == "input_image":
        if not isinstance(part.get("image_url"), str):
            raise UnsupportedRequest(where, "an image needs an image_url; files by id are not supported")
        detail = part.get("detail")
        return {"type": "image_url", "image_url": {"url": part["image_url"], **({"detail": detail} if detail else {})}}
    if kind == "input_file":
        if part.get("file_url"):
            raise UnsupportedRequest(where, "files by URL are not supported: send file_data")
        return {"type": "file", "file": {name: part[name] for name in ("file_data", "file_id", "filename") if part.get(name)}}
    if kind == "input_audio":
        return {"type": "input_audio", "input_audio": part.get("input_audio")}
    raise UnsupportedRequest(where, f"content of type {kind!r} is not supported")


def responses_parts(content: Any) -> list[Part]:
    """Chat content of a user, a system message or a tool as parts of a Responses item; kinds without a counterpart stay as they are."""
    if content is None or isinstance(content, str):
        return [{"type": "input_text", "text": content or ""}]
    return [_to_responses(part) for part in map(fields_of, list_of(content))]


def _to_responses(part: Part) -> Part:
    kind = part.get("type")
    if kind == "text":
        return {"type": "input_text", "text": text_of(part)}
    if kind == "image_url":
        given = part.get("image_url")
        image = fields_of(given) or {"url": given}
        return {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail") or "auto"}
    if kind == "file":
        return {"type": "input_file", **cast(Part, part.get("file") or {})}
    return part


def block_part(block: Part, where: str) -> Part:
    """A block of a Messages turn as a part of Chat content."""
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": text_of(block)}
    source: Any = block.get("source")
    if kind == "image" and isinstance(source, dict):
        return {"type": "image_url", "image_url": {"url": _image_url(cast(Part, source), where)}}
    if kind == "document" and isinstance(source, dict):
        return _document(cast(Part, source), block.get("title"), where)
    raise UnsupportedRequest(where, f"a block of type {kind!r} is not supported")


def _image_url(source: Part, where: str) -> str:
    if source.get("type") == "url":
        return str(source.get("url"))
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    raise UnsupportedRequest(f"{where}.source", f"an image by {source.get('type')!r} is not supported: send base64 or a url")


def _document(source: Part, title: Any, where: str) -> Part:
    if source.get("type") == "text":
        text = str(source.get("data"))
        return {"type": "text", "text": f"{title}\n\n{text}" if title else text}
    if source.get("type") == "base64":
        data = f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "file", "file": {"file_data": data, "filename": str(title or "document.pdf")}}
    raise UnsupportedRequest(f"{where}.source", f"a document by {source.get('type')!r} is not supported: send text or base64")
