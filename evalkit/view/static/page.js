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

  // A form with data-live-form shows what it asks for while it is filled in: the attribute names the element that is
  // replaced by what the page of the new query has in its place. Without scripts the form is sent as any other.
  const LIVE_MS = 150;
  const wireForms = (root) => {
    for (const form of all("form[data-live-form]", root)) {
      let timer, asked = 0;
      const load = async () => {
        clearTimeout(timer);
        const number = ++asked;
        const given = [...new FormData(form)].filter(([, value]) => value !== "");
        const query = new URLSearchParams(given).toString();
        const address = location.pathname + (query ? `?${query}` : "");
        const shown = document.getElementById(form.dataset.liveForm);
        shown.setAttribute("aria-busy", "true");
        try {
          const answer = await fetch(address);
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          if (number !== asked) return;
          if (answer.status === 202) { timer = setTimeout(load, 1000); return; }
          const found = page.getElementById(form.dataset.liveForm) || page.getElementById("content");
          shown.replaceChildren(...found.childNodes);
          wire(shown);
          history.replaceState(null, "", address);
        } catch (flaw) {
          if (number === asked) shown.textContent = `This cannot be shown: ${flaw.message}`;
        }
        shown.removeAttribute("aria-busy");
      };
      form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(load, LIVE_MS); });
      form.addEventListener("submit", (event) => { event.preventDefault(); load(); });
      // What was filled in before this script came, or was restored by the browser, is asked for at once.
      const changed = (field) => field.options
        ? field.selectedIndex !== Math.max(0, [...field.options].findIndex((option) => option.defaultSelected))
        : "defaultValue" in field && field.value !== field.defaultValue;
      if ([...form.elements].some(changed)) load();
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

  // A page in one file keeps its larger parts packed: base64 of gzip, in elements that are not scripts.
  const unpack = async (id) => {
    if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old to unpack it");
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  let library;
  const vega = () => {
    if (typeof vegaEmbed !== "undefined") return Promise.resolve();
    library = library || unpack("vega").then((code) => {
      const script = document.createElement("script");
      script.textContent = code;
      document.head.append(script);
    });
    return library;
  };
  const load = async (from) => {
    if (from.startsWith("#")) return unpack(from.slice(1));
    const answer = await fetch(from);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    return answer.text();
  };

  // Figures come and are drawn when they scroll near; expressions are interpreted, so that no text becomes code.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = document.getElementById("theme");
  // Vega-Lite cannot know that the layers of a panel share their rows, and warns of it each time. It takes no logger.
  const known = "Detected faceted independent scales that union domain";
  const warn = console.warn;
  console.warn = (...said) => { if (!said.some((part) => String(part).startsWith(known))) warn.apply(console, said); };
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
  const coming = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      const figure = entry.target;
      coming.unobserve(figure);
      load(figure.dataset.from).then((text) => {
        const made = document.createElement("template");
        made.innerHTML = text;
        const here = made.content.firstElementChild;
        figure.replaceWith(here);
        wireTables(here); wireButtons(here); near.observe(here.querySelector(".plot"));
      }).catch((flaw) => { figure.textContent = `This figure cannot be shown: ${flaw.message}`; });
    }
  }, { rootMargin: "600px 0px" });
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      vega().then(() => draw(entry.target)).catch((flaw) => {
        entry.target.textContent = `This figure cannot be drawn: ${flaw.message}`;
      });
    }
  }, { rootMargin: "600px 0px" });
  const wirePlots = (root) => {
    for (const plot of all(".plot[data-spec]", root)) near.observe(plot);
    for (const figure of all("figure[data-from]", root)) coming.observe(figure);
  };
  dark.addEventListener("change", () => all(".plot[data-drawn]").forEach(draw));

  const wire = (root) => { wireTables(root); wireButtons(root); wirePlots(root); wireForms(root); };
  wire(document);

  // In a one-file page, each trajectory is a packed part and is shown when its address is opened.
  const shown = document.getElementById("trajectory");
  const follow = async () => {
    const id = location.hash.slice(1);
    if (!shown || !id.startsWith("episode-") || !document.getElementById(id)) return;
    shown.hidden = false;
    try {
      shown.innerHTML = await unpack(id);
    } catch (flaw) {
      shown.textContent = `This trajectory cannot be shown: ${flaw.message}`;
    }
    wire(shown);
    shown.scrollIntoView();
    shown.focus({ preventScroll: true });
  };
  addEventListener("hashchange", follow);
  follow();
})();
