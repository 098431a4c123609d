"""Rename symbols everywhere by pyright's language server, as `symbols.txt` lists them.

    npm install pyright
    python -m tests.move.rename node_modules/.bin/pyright-langserver [--apply]

A line of the table is `path::Class.member -> new name`. All renames are asked for on the tree as it
is and are applied at once, so their order does not matter. pyright does not rename what implements
a Protocol by its shape alone, nor names in strings: mypy and the tests find those.
"""

from __future__ import annotations

import ast
import json
import queue
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("symbols.txt")
_SCAN_S = 8  # pyright reads the workspace before it answers
_ANSWER_S = 900

Edits = dict[tuple[int, int, int, int], str]


def rows() -> list[tuple[str, str, str]]:
    """Return path, qualified name and new name of each line."""
    found = []
    for line in TABLE.read_text().splitlines():
        place, _, new = line.partition(" -> ")
        path, _, name = place.partition("::")
        found.append((path, name, new))
    return found


def position(path: str, name: str) -> tuple[int, int]:
    """Return the line and column where *name* is defined."""
    text = (ROOT / path).read_text()
    lines, node = text.splitlines(), ast.parse(text)
    last = name.rpartition(".")[2]
    for part in name.split("."):
        found = next((each for each in getattr(node, "body", []) if _defines(each, part)), None)
        if found is None:
            return _attribute(node, part, lines)
        node = found
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.lineno - 1, lines[node.lineno - 1].index(last, node.col_offset + 3)
    return node.lineno - 1, lines[node.lineno - 1].index(last)


def _defines(node: Any, name: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name == name
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(each, ast.Name) and each.id == name for each in targets)


def _attribute(node: ast.AST, name: str, lines: list[str]) -> tuple[int, int]:
    for each in ast.walk(node):
        is_set = isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        if is_set and each.attr == name and each.end_lineno:
            line = each.end_lineno - 1
            return line, lines[line].index(f".{name}", each.col_offset) + 1
    raise SystemExit(f"there is no {name}: the code has moved, mend the table")


class Server:
    """pyright's language server, asked one question after the other."""

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(
            [command, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._number = 0
        threading.Thread(target=self._read, daemon=True).start()
        folder = {"uri": ROOT.as_uri(), "name": ROOT.name}
        able = {"workspace": {"configuration": True}}
        self.ask(
            "initialize",
            {"processId": None, "workspaceFolders": [folder], "capabilities": able},
        )
        self._send({"method": "initialized", "params": {}})
        time.sleep(_SCAN_S)

    def open(self, path: str) -> None:
        """Let the server read a file."""
        text = (ROOT / path).read_text()
        about = {"uri": (ROOT / path).as_uri(), "languageId": "python", "version": 1, "text": text}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": about}})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Ask, and return the result."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        answer = self._answers.get(timeout=_ANSWER_S)
        if "error" in answer:
            raise SystemExit(f"{method}: {answer['error']}")
        return answer["result"]

    def end(self) -> None:
        """End the server."""
        self._process.kill()

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        while line := stdout.readline():
            size = int(line.partition(b":")[2]) if line.startswith(b"Content-Length") else 0
            while line.strip():
                line = stdout.readline()
            message = json.loads(stdout.read(size))
            if "method" not in message:
                self._answers.put(message)
            elif "id" in message:
                items = message.get("params", {}).get("items", [])
                whole = {"diagnosticMode": "workspace", "typeCheckingMode": "off"}
                told = [whole if i.get("section") == "python.analysis" else None for i in items]
                self._send({"id": message["id"], "result": told})


def main() -> int:
    """Ask for every rename; write them with --apply."""
    server, edits, opened = Server(sys.argv[1]), defaultdict[str, Edits](dict), set[str]()
    for path, name, new in rows():
        if path not in opened:
            opened.add(path)
            server.open(path)
        line, column = position(path, name)
        where = {"line": line, "character": column}
        about = {"textDocument": {"uri": (ROOT / path).as_uri()}, "position": where}
        told = server.ask("textDocument/rename", {**about, "newName": new})
        changes = told.get("changes") or {
            each["textDocument"]["uri"]: each["edits"] for each in told["documentChanges"]
        }
        for uri, each in changes.items():
            for edit in each:
                start, end = edit["range"]["start"], edit["range"]["end"]
                at = (start["line"], start["character"], end["line"], end["character"])
                edits[unquote(uri.removeprefix("file://"))][at] = edit["newText"]
        print(f"{name} -> {new}: {sum(map(len, changes.values()))}", flush=True)
    server.end()
    if "--apply" in sys.argv:
        for file, wanted in edits.items():
            lines = Path(file).read_text().split("\n")
            for (line, first, _, last), text in sorted(wanted.items(), reverse=True):
                lines[line] = lines[line][:first] + text + lines[line][last:]
            Path(file).write_text("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
