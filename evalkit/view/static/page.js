"use strict";
(() => {
  const all = (selector, inside = document) => Array.from(inside.querySelectorAll(selector));

  // Tables: sort by the values behind what is shown, filter by what is shown.
  const value = (row, place) => {
    const cell = row.cells[place];
    const given = cell.dataset.v;
    if (given === undefined) return { text: cell.textContent.trim(), number: NaN };
    return { text: given, number: given === "" ? NaN : Number(given) };
  };
  const compare = (a, b) => {
    const missing = Number.isNaN(a.number) - Number.isNaN(b.number);
    if (!Number.isNaN(a.number) && !Number.isNaN(b.number)) return a.number - b.number;
    return missing || a.text.localeCompare(b.text, undefined, { numeric: true });
  };
  const wireTables = (root) => {
    for (const button of all("th button.sort", root)) {
      button.addEventListener("click", () => {
        const head = button.closest("th");
        const table = button.closest("table");
        const place = head.cellIndex;
        const before = head.getAttribute("aria-sort");
        const numeric = head.classList.contains("num");
        const direction = before === null ? (numeric ? "descending" : "ascending")
          : before === "ascending" ? "descending" : "ascending";
        for (const other of all("th", table)) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", direction);
        table.classList.add("sorted");
        const rows = all("tbody tr", table);
        const sign = direction === "ascending" ? 1 : -1;
        rows.sort((a, b) => sign * compare(value(a, place), value(b, place)));
        table.tBodies[0].append(...rows);
      });
    }
    for (const input of all(".tools input[type=search]", root)) {
      input.addEventListener("input", () => {
        const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
        const table = input.closest(".grid").querySelector("table");
        const rows = all("tbody tr", table);
        let shown = 0;
        for (const row of rows) {
          const text = row.textContent.toLowerCase();
          row.hidden = !words.every((word) => text.includes(word));
          shown += !row.hidden;
        }
        table.classList.toggle("sorted", words.length > 0);
        const found = input.closest(".tools").querySelector(".found");
        found.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
      });
    }
  };

  const wireButtons = (root) => {
    for (const button of all("[data-copy]", root)) {
      button.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(button.dataset.copy);
          button.textContent = "Copied";
        } catch {
          const range = document.createRange();
          range.selectNodeContents(button.parentElement.querySelector("code"));
          getSelection().removeAllRanges();
          getSelection().addRange(range);
        }
      });
    }
  };

  // Mark the visible section in the navigation.
  const marks = new Map(all(".sections a").map((link) => [decodeURIComponent(link.hash.slice(1)), link]));
  if (marks.size) {
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting || !marks.has(entry.target.id)) continue;
        for (const link of marks.values()) link.removeAttribute("aria-current");
        marks.get(entry.target.id).setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-15% 0px -75% 0px" });
    for (const id of marks.keys()) {
      const section = document.getElementById(id);
      if (section) seen.observe(section);
    }
  }

  // Figures are drawn when they scroll near; expressions are interpreted, so that no text becomes code.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = document.getElementById("theme");
  const draw = (plot) => {
    const config = JSON.parse(theme.textContent)[dark.matches ? 1 : 0];
    const spec = JSON.parse(document.getElementById(plot.dataset.spec).textContent);
    vegaEmbed(plot, spec, {
      mode: "vega-lite", logLevel: 1 /* errors */, actions: false, ast: true, renderer: "svg", defaultStyle: false, config,
      loader: { load: () => Promise.reject(new Error("nothing is loaded from anywhere")) },
      tooltip: { disableDefaultStyle: true },
    }).then((result) => { plot.dataset.drawn = "yes"; return result; })
      .catch((flaw) => { plot.textContent = `This figure cannot be drawn: ${flaw.message}`; console.error(flaw); });
  };
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "600px 0px" });
  const wirePlots = (root) => {
    if (typeof vegaEmbed !== "undefined") for (const plot of all(".plot[data-spec]", root)) near.observe(plot);
  };
  dark.addEventListener("change", () => all(".plot[data-drawn]").forEach(draw));

  const wire = (root) => { wireTables(root); wireButtons(root); wirePlots(root); };
  wire(document);

  // In a one-file page, each trajectory is in a template and is shown when its address is opened.
  const shown = document.getElementById("trajectory");
  const follow = () => {
    const template = shown && location.hash.startsWith("#episode-") && document.getElementById(location.hash.slice(1));
    if (!template) return;
    shown.replaceChildren(template.content.cloneNode(true));
    shown.hidden = false;
    wire(shown);
    shown.scrollIntoView();
    shown.focus({ preventScroll: true });
  };
  addEventListener("hashchange", follow);
  follow();
})();
