"""What the docs name in the code is there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.helpers import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
NAMED = re.compile(r"\]\((?P<file>[^)\s]+\.py)\)(?:\s*\|)?(?P<names>[^|\[\n]*(?:\n[^|\[\n]*)?)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page):
    gone = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert gone == []


def names_in(file) -> set[str]:
    """Functions, classes and methods (`Class.method`) of a file."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{method.name}" for method in node.body if hasattr(method, "name")}
    return found


def test_every_function_of_the_tour_is_in_the_file_it_is_said_to_be_in():
    page = ROOT / "docs" / "tour.md"
    seen = 0
    for match in NAMED.finditer(page.read_text()):
        file = page.parent / match["file"]
        for name in re.findall(r"`([A-Za-z_][\w.]*)`", match["names"]):
            if name in ("run.json", "trials.jsonl"):
                continue
            assert name in names_in(file), f"{file.name} has no {name}"
            seen += 1
    assert seen > 25


def test_the_walk_from_the_command_to_the_optimizer_has_at_most_ten_files():
    text = (ROOT / "docs" / "tour.md").read_text()
    walk = text.partition("## One PPO step")[2].partition("\n\nBefore the first")[0]
    assert 5 < len(re.findall(r"^\| \d+ \|", walk, re.M)) <= 10
