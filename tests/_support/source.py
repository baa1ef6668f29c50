"""The package's source as syntax trees, read once, for the structure tests."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "fairveil"


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: Path

    @property
    def name(self) -> str:
        """The dotted name of the module below the package, "" for the package itself."""
        return ".".join(self.path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")

    @cached_property
    def text(self) -> str:
        """The whole file."""
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        """The file as a syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree."""
        return list(ast.walk(self.tree))

    def at(self, node: ast.AST) -> str:
        """Return where a node stands, for a list of offenders."""
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"

    def imports(self) -> Iterator[tuple[ast.AST, str]]:
        """Yield every import with the full name of each imported module or object."""
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in node.names:
                    yield node, f"{node.module}.{name.name}"
            elif isinstance(node, ast.Import):
                for name in node.names:
                    yield node, name.name

    def identifiers(self) -> Iterator[tuple[ast.AST, str]]:
        """Yield every name that this file defines or uses, except attributes of other libraries' modules."""
        for node in self.nodes:
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                    yield node, name
                case ast.Name(id=name):
                    yield node, name
                case ast.Attribute(attr=name, value=value):
                    if not (isinstance(value, ast.Name) and value.id in {"np", "math"}):
                        yield node, name
                case ast.keyword(arg=str(name)):
                    yield node, name
                case _:
                    pass

    def strings(self) -> Iterator[tuple[ast.AST, str]]:
        """Yield every string constant, docstrings and the fixed parts of f-strings included."""
        for node in self.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node, node.value


def package_sources() -> list[Source]:
    """Return all files of the package."""
    return [Source(path) for path in sorted(PACKAGE.rglob("*.py"))]


def words_of(identifier: str) -> list[str]:
    """Return the words of an identifier in lower case, split at underscores and capitals."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)]


def code_blocks(path: Path, language: str) -> list[str]:
    """Return the fenced code blocks of a language in a Markdown file."""
    blocks = re.findall(r"^ *```([^\n]*)\n(.*?)^ *```$", path.read_text(), re.DOTALL | re.MULTILINE)
    return [text for info, text in blocks if info == language]
