// Draws the charts, lets a trial that is pointed at light up in all of them, sorts the table.
(() => {
  "use strict";
  const page = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const trials = new Map(page.trials.map((row) => [row.trial, row]));
  const points = new Map(page.points.map((row) => [row.point, row]));
  const table = document.getElementById("trials");
  const body = table && table.tBodies[0];
  const rows = new Map(body ? [...body.rows].map((row) => [Number(row.dataset.trial), row]) : []);
  const views = [];
  let pinned = null;

  const flat = (list, make) => list.flatMap((row) => make(row));
  const datasets = {
    trials: page.trials,
    best: page.best,
    points: page.points,
    moves: page.moves,
    repeats: page.trials.filter((row) => points.has(row.point) && row.score !== undefined)
      .map((row) => ({ ...row, rank: points.get(row.point).rank })),
    lines: flat(page.trials.filter((row) => row.ys), (row) =>
      row.ys.map((y, axis) => ({ trial: row.trial, shade: row.shade, axis, y }))),
    curves: flat(page.curves, (row) =>
      row.steps.map((step, i) => ({ trial: row.trial, shade: row.shade, step, value: row.values[i] }))),
  };

  function theme() {
    const d = dark.matches;
    const ink = d ? "#e4eaf0" : "#17212b", soft = d ? "#93a1ae" : "#5d6b79";
    const line = d ? "#3a4752" : "#ccd5dd", faint = d ? "#26313a" : "#edf1f4", card = d ? "#182027" : "#ffffff";
    const strong = d ? "#ffb454" : "#e0562a", good = d ? "#45d6aa" : "#0c7f60", accent = d ? "#5cc3e2" : "#2f8fb3";
    const ramp = getComputedStyle(document.body).getPropertyValue("--ramp").split(",").map((colour) => colour.trim());
    const font = getComputedStyle(document.body).fontFamily;
    return {
      background: "transparent", font, padding: 2,
      view: { stroke: null },
      range: { ramp, heatmap: ramp },
      axis: {
        labelColor: soft, titleColor: soft, labelFontSize: 12, titleFontSize: 12.5, titleFontWeight: 500,
        domainColor: line, tickColor: line, gridColor: faint, titlePadding: 8, labelPadding: 4, labelOverlap: true,
      },
      legend: { labelColor: soft, titleColor: soft, labelFontSize: 12, titleFontSize: 12 },
      line: { strokeJoin: "round", strokeCap: "round" },
      style: {
        best: { color: good, strokeWidth: 2, strokeOpacity: 0.8 },
        chosen: { color: strong, filled: false, strokeWidth: 2.5 },
        "chosen-line": { color: strong, strokeWidth: 3 },
        thread: { strokeWidth: 1.5 },
        hit: { strokeWidth: 11, strokeOpacity: 0, color: "#000" },
        move: { color: strong, filled: true, opacity: 1, size: 70 },
        "axis-rule": { color: soft, opacity: 0.6, strokeWidth: 1.2 },
        "axis-tick": { color: soft },
        "axis-label": { color: ink, fontSize: 12, align: "right", baseline: "middle", dx: -8, stroke: card, strokeWidth: 3.5 },
        "axis-head": { color: ink, fontSize: 13, fontWeight: 600, align: "center", baseline: "middle", stroke: card, strokeWidth: 3 },
        share: { color: accent },
        "share-figure": { color: ink, fontSize: 12 },
        interval: { color: accent, strokeWidth: 5, strokeOpacity: 0.35, strokeCap: "round" },
        mean: { color: accent, opacity: 1 },
        repeat: { color: soft, opacity: 0.7 },
      },
    };
  }

  function focus(numbers) {
    document.body.classList.toggle("focus", numbers.length > 0);
    for (const view of views) view.signal("focus", numbers).runAsync();
    for (const [number, row] of rows) row.classList.toggle("lit", numbers.includes(number));
  }

  const tip = document.getElementById("tip");
  const element = (name, text) => Object.assign(document.createElement(name), { textContent: text });
  function showTip(head, facts, event) {
    const list = document.createElement("dl");
    for (const [name, value] of facts) list.append(element("dt", name), element("dd", value));
    tip.replaceChildren(element("h3", head), list);
    tip.style.display = "block";
    const x = event.clientX, y = event.clientY, w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = `${x + 18 + w > innerWidth ? Math.max(4, x - w - 14) : x + 18}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - h - 8))}px`;
  }
  const hideTip = () => { tip.style.display = "none"; };

  function about(row) {
    const took = row.took >= 90 ? `${(row.took / 60).toFixed(1)} min` : `${row.took} s`;
    const score = row.written === undefined ? [] : [[page.metric, row.written]];
    return [...score, ["state", row.state], ["time", took], ...row.facts];
  }

  function pointed(event, item) {
    const datum = item && item.datum;
    // A line inside its group stands for all of its points; the first of them says whose it is.
    const at = datum && datum.trial !== undefined ? datum : datum && Array.isArray(datum.items) ? datum.items[0] : null;
    const row = at && trials.get(at.trial);
    if (row && item.mark.name !== "moves_marks") return { numbers: [row.trial], head: `trial ${row.trial}`, facts: about(row) };
    const point = datum && datum.mean !== undefined && points.get(datum.point);
    if (point) return { numbers: point.trials, head: `point ${point.point}`, facts: [["mean", point.written], ...point.facts] };
    return null;
  }

  async function drawAll() {
    for (const view of views.splice(0)) view.finalize();
    const config = theme();
    for (const [name, spec] of Object.entries(page.charts)) {
      const used = {};
      const find = (node) => {
        if (node.data && node.data.name in datasets) used[node.data.name] = datasets[node.data.name];
        (node.layer || []).forEach(find);
      };
      find(spec);
      const { view } = await vegaEmbed(document.getElementById(name), { ...spec, datasets: { ...spec.datasets, ...used } }, {
        renderer: "svg", config, actions: { export: true, source: false, compiled: false, editor: false }, downloadFileName: name,
      });
      if (!spec.params) continue;
      views.push(view);
      view.addEventListener("mousemove", (event, item) => {
        const found = pointed(event, item);
        if (found) showTip(found.head, found.facts, event); else hideTip();
        if (pinned === null) focus(found ? found.numbers : []);
      });
      view.addEventListener("mouseout", () => { hideTip(); if (pinned === null) focus([]); });
      view.addEventListener("click", (event, item) => {
        const found = pointed(event, item);
        pinned = found ? found.numbers : null;
        focus(pinned || []);
        const row = found && rows.get(found.numbers[0]);
        if (row && row.parentNode) row.scrollIntoView({ block: "nearest" });
      });
    }
    document.body.dataset.drawn = String(Object.keys(page.charts).length);
  }

  function sortBy(head) {
    const column = head.cellIndex;
    const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : head.dataset.first === "down";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const numeric = head.dataset.kind === "number";
    const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
    const sorted = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = numeric ? Number(x) - Number(y) : x.localeCompare(y, undefined, { numeric: true });
      return down ? -order : order;
    });
    body.append(...sorted);
  }

  if (table) {
    for (const head of table.tHead.rows[0].cells) head.addEventListener("click", () => sortBy(head));
    body.addEventListener("mouseover", (event) => {
      const row = event.target.closest("tr");
      if (row && pinned === null) focus([Number(row.dataset.trial)]);
    });
    body.addEventListener("mouseleave", () => { if (pinned === null) focus([]); });
    document.getElementById("filter").addEventListener("input", (event) => {
      const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of body.rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") { pinned = null; focus([]); hideTip(); } });
  const copy = document.getElementById("copy");
  if (copy) copy.addEventListener("click", async () => {
    const range = document.createRange();
    range.selectNodeContents(document.getElementById("command"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    try { await navigator.clipboard.writeText(range.toString()); copy.textContent = "copied"; } catch { document.execCommand("copy"); copy.textContent = "copied"; }
  });
  dark.addEventListener("change", drawAll);
  drawAll();
})();
