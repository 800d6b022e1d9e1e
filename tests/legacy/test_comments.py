"""Comments of an old file stay with the keys they speak of."""

from __future__ import annotations

from rayfish.experiment.files import key_lines
from rayfish.legacy.migration import comments_of

TEXT = """# At the top.
a:   # beside a
    # before b
    # in two lines
    b: "text # no comment"
    c: |
        text  # no comment either
    d: plain#text   # beside d
    e: [
        1,  # in a list
    ]
    # before nothing
"""


def test_each_comment_is_found_once_with_its_key():
    found, loose = comments_of(TEXT, key_lines(TEXT))
    assert found["a"].before == ["# At the top."]
    assert found["a"].beside == "# beside a"
    assert found["a.b"].before == ["# before b", "# in two lines"]
    assert found["a.b"].beside == ""
    assert "a.c" not in found
    assert found["a.d"].beside == "# beside d"
    assert loose == ["# in a list", "# before nothing"]
