"""Whether a template reads content as a string or as a list of parts, from its syntax tree.

Content is followed through assignments and macros: `{% set c = message.content %}` makes `c`
content, and so does `{{ show(message.content) }}` for the first parameter of `show`.
"""

from collections.abc import Iterator

from jinja2 import nodes

from headwater.prompt.chat.format import ContentFormat

__all__ = ["detect_content_format"]


def detect_content_format(tree: nodes.Template) -> ContentFormat:
    """The form of content that a template is written for.

    Args:
        tree: The parsed template.

    Returns:
        `openai` when it goes through a list of parts, `any` when it asks first whether the content
        is a string, else `string`.
    """
    names = _content_names(tree)
    if not any(_goes_through(node, names) for node in tree.find_all(nodes.Node)):
        return "string"
    tests = tree.find_all(nodes.Test)
    asks = any(test.name == "string" and _is_content(test.node, names) for test in tests)
    return "any" if asks else "openai"


def _is_content(node: nodes.Node | None, names: set[str]) -> bool:
    """Whether an expression is some message's content, filtered or not."""
    while isinstance(node, (nodes.Filter, nodes.Test)):
        node = node.node
    if isinstance(node, nodes.Name):
        return node.name in names
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        if isinstance(node.arg, nodes.Slice):
            return _is_content(node.node, names)
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    if isinstance(node, nodes.CondExpr):
        return _is_content(node.expr1, names) or _is_content(node.expr2, names)
    return isinstance(node, nodes.Or) and _is_content(node.left, names)


def _goes_through(node: nodes.Node, names: set[str]) -> bool:
    """A loop over content, or a field of one of its items (`content[0].text`)."""
    if isinstance(node, nodes.For):
        return _is_content(node.iter, names)
    if isinstance(node, (nodes.Getattr, nodes.Getitem)):
        item = node.node
        return (
            isinstance(item, nodes.Getitem)
            and isinstance(item.arg, nodes.Const)
            and isinstance(item.arg.value, int)
            and _is_content(item.node, names)
        )
    return False


def _content_names(tree: nodes.Template) -> set[str]:
    """Variables and macro parameters that hold content."""
    macros = {macro.name: macro for macro in tree.find_all(nodes.Macro)}
    names: set[str] = set()
    while True:
        found = names | set(_assigned(tree, names)) | set(_passed(tree, macros, names))
        if found == names:
            return names
        names = found


def _assigned(tree: nodes.Template, names: set[str]) -> Iterator[str]:
    for node in tree.find_all(nodes.Assign):
        if isinstance(node.target, nodes.Name) and _is_content(node.node, names):
            yield node.target.name


def _passed(tree: nodes.Template, macros: dict[str, nodes.Macro], names: set[str]) -> Iterator[str]:
    for call in tree.find_all(nodes.Call):
        macro = macros.get(call.node.name) if isinstance(call.node, nodes.Name) else None
        if macro is not None:
            for parameter, value in zip(macro.args, call.args, strict=False):
                if _is_content(value, names):
                    yield parameter.name
