"""A real browser for a page: what it drew, and what it does when one points at it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

_WATCH = """<script>
window.faults = [];
addEventListener("error", (event) => faults.push(String(event.message)));
addEventListener("unhandledrejection", (event) => faults.push(String(event.reason)));
document.addEventListener("securitypolicyviolation", (event) => faults.push("asked for " + event.blockedURI));
</script>"""
_ASK = """<script>(async () => {
  const wait = (ms) => new Promise((go) => setTimeout(go, ms));
  const until = async (test) => { for (let i = 0; i < 400 && !test(); i++) await wait(20); };
  const count = (selector) => document.querySelectorAll(selector).length;
  await until(() => document.body.dataset.drawn !== undefined);
  let answer;
  try { answer = await (async () => { %s })(); } catch (error) { faults.push(String(error)); }
  const fetched = performance.getEntriesByType("resource").map((entry) => entry.name);
  const out = document.createElement("pre");
  out.id = "answer";
  out.textContent = JSON.stringify({ answer, faults, fetched, drawn: document.body.dataset.drawn });
  document.body.replaceChildren(out);
})();</script>"""


def ask(page: Path, question: str) -> Any:
    """Opens a copy of the page with no network and gives what the body of a function in it returns.

    A fault of any script, and any request for another resource, fails the test.
    """
    assert CHROMIUM is not None
    text = page.read_text(encoding="utf-8").replace("<meta charset", _WATCH + "<meta charset", 1)
    end = text.rindex("</body>")
    copy = page.with_name(f"asked-{page.name}")
    copy.write_text(text[:end] + _ASK % question + text[end:], encoding="utf-8")
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={page.parent / 'chromium'}",
            "--window-size=1400,2600",
            "--virtual-time-budget=15000",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, f"no answer from the browser: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    told = json.loads(html.unescape(found[1]))
    assert told["faults"] == [] and told["fetched"] == []
    return told["answer"]
