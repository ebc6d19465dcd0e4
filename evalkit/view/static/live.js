"use strict";
// The page of a running sweep: asks for its state twice a second and shows it. Texts are set as text, never as HTML.
(() => {
  const page = document.getElementById("live");
  if (!page) return;
  const EVERY_MS = 500, IDLE_MS = 3000;
  const part = (id) => document.getElementById(id);
  const whole = (value) => Math.round(value).toLocaleString("en-US");
  const usd = (value) => value === 0 ? "$0" : `$${value.toFixed(value >= 1 ? 2 : 4)}`;
  const span = (s) => s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`;
  const make = (name, text, style) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (style) element.className = style;
    return element;
  };
  const bar = (share) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("class", "bar");
    svg.setAttribute("viewBox", "0 0 100 5");
    svg.setAttribute("preserveAspectRatio", "none");
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    rect.setAttribute("width", Math.max(0, Math.min(100, 100 * share)));
    rect.setAttribute("height", 5);
    svg.append(rect);
    return svg;
  };
  const fact = (title, value, note, share) => {
    const box = make("div");
    const dd = make("dd", `${value} `);
    if (note) dd.append(make("span", note, "small"));
    if (share !== undefined) dd.append(bar(share));
    box.append(make("dt", title), dd);
    return box;
  };
  // A telephone shows a row as a card that names each value.
  const fill = (body, rows) => {
    const heads = Array.from(body.closest("table").tHead.rows[0].cells, (head) => head.textContent);
    body.replaceChildren(...rows.map(([cells, style]) => {
      const tr = make("tr", undefined, style);
      cells.forEach(([value, name], i) => {
        const td = make("td", undefined, name);
        td.dataset.label = heads[i];
        td.append(value);
        tr.append(td);
      });
      return tr;
    }));
  };
  const counts = (of) => Object.entries(of).map(([name, count]) => `${name.replaceAll("_", " ")} ${whole(count)}`).join(", ");

  // The process keeps the rate from its beginning on, so a page that is opened late draws the whole curve at once.
  const line = (live) => {
    const known = [...(live.history || []), [live.elapsed_s, live.steps_per_s]];
    const most = Math.max(1, ...known.map(([, rate]) => rate));
    const [from, to] = [known[0][0], live.elapsed_s];
    const points = known.map(([at, rate]) => `${(600 * (at - from) / Math.max(0.1, to - from)).toFixed(1)},${(58 - 54 * rate / most).toFixed(1)}`);
    const drawn = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    drawn.setAttribute("points", points.join(" "));
    part("rate-line").replaceChildren(drawn);
    part("rate-now").textContent = `${live.steps_per_s.toLocaleString("en-US")} now, ${Math.round(most * 10) / 10} at most`;
  };

  const facts = (live) => {
    const spent = live.budget_usd ? live.spent_usd / live.budget_usd : undefined;
    part("live-facts").replaceChildren(
      fact("Episodes ended", whole(live.done), `of ${whole(live.episodes)}`, live.done / Math.max(1, live.episodes)),
      fact("Spent", usd(live.spent_usd), live.budget_usd === null ? "no budget" : `of ${usd(live.budget_usd)}`, spent),
      fact("Reserved", usd(live.reserved_usd), "for requests in flight"),
      fact("Time left", live.eta_s === null ? "–" : span(live.eta_s), `${span(live.elapsed_s)} so far`),
      fact("Steps", whole(live.steps), "in this call"),
    );
  };

  const lane = ([name, one]) => {
    const paused = one.paused_s >= 2;
    const waits = one.ended || (paused ? `paused, retries in ${span(one.paused_s)}` : one.waits_for);
    const remaining = Object.entries(one.left).filter(([why]) => ["unavailable", "too_large", "internal_error", "agent_error", "diverged", "refused"].includes(why));
    const failed = counts({ ...one.failures, ...Object.fromEntries(remaining) });
    return [[
      [name, "text"], [bar(one.done / Math.max(1, one.episodes)), ""],
      [`${whole(one.done)}/${whole(one.episodes)}`, "number"], [one.steps_per_s.toLocaleString("en-US"), "number"],
      [one.window ? whole(one.requests_per_min) : "–", "number"], [one.window ? whole(one.tokens_per_min) : "–", "number"],
      [one.window ? `${whole(one.in_flight)}/${whole(one.window)}` : whole(one.playing), "number"],
      [whole(one.waiting), "number"], [waits || "–", "words"],
      [one.latency_s ? `${whole(1000 * one.latency_s)} ms` : "–", "number"], [failed || "–", "words"],
    ], paused || one.ended || one.trouble ? "trouble" : ""];
  };

  // Of a lane with several servers, each in a row below it.
  const server = (one) => {
    const away = one.down_s ? `down for ${span(one.down_s)}` : one.paused_s >= 1 ? `paused for ${span(one.paused_s)}` : "–";
    return [[
      [`↳ ${one.server}`, "text"], ["", ""], ["", "number"], ["", "number"], ["", "number"], ["", "number"],
      [`${whole(one.in_flight)}/${whole(one.window)}`, "number"], ["", "number"], [away, "words"],
      [one.latency_s ? `${whole(1000 * one.latency_s)} ms` : "–", "number"], [one.trouble || "–", "words"],
    ], one.down_s ? "trouble" : ""];
  };

  const show = (said) => {
    const state = part("live-state");
    const live = said.live;
    const word = !said.running ? "not running" : !live ? "starting" : live.stopping ? "stopping" : "running";
    if (state.textContent !== word) state.textContent = word;
    state.className = `state ${word === "running" ? "running" : ""}`;
    part("live-over").hidden = said.running;
    part("live-note").textContent = !said.running ? said.ended : said.silent_s ? `no update for ${span(said.silent_s)}`
      : live && live.stopping ? `${live.stopping}: waiting for replies in flight` : "";
    if (!live) return;
    part("live-body").hidden = false;
    facts(live);
    line(live);
    const lanes = Object.entries(live.lanes);
    const troubles = lanes.filter(([, one]) => one.trouble && !one.ended).map(([name, one]) => make("li", `${name}: ${one.trouble}`));
    part("live-troubles").hidden = !troubles.length;
    part("live-troubles").firstElementChild.replaceChildren(...troubles);
    fill(part("live-lanes"), lanes.flatMap((entry) => [lane(entry), ...(entry[1].servers || []).map(server)]));
    const asked = live.question ? live.question.answers : [];
    part("question").hidden = !asked.length;
    part("question-now").textContent = `${whole(asked.filter((one) => !one.open).length)} of ${whole(asked.length)} answered`;
    fill(part("live-question"), asked.map((one) => [[
      [one.words, "words"], [one.open ? "open" : one.answer, "text"], [whole(one.draws), "number"],
    ], ""]));
    fill(part("live-cells"), live.cells.map(([agent, suite, ended, planned]) => [[
      [agent, "text"], [suite, "text"], [bar(ended / Math.max(1, planned)), ""],
      [whole(ended), "number"], [whole(planned), "number"],
    ], ""]));
    part("cells").hidden = !live.cells.length;
  };

  const poll = async () => {
    let next = IDLE_MS;
    try {
      const answer = await fetch(page.dataset.from, { cache: "no-store" });
      if (answer.ok) {
        const said = await answer.json();
        show(said);
        if (said.running) next = EVERY_MS;
      }
    } catch {
      part("live-state").textContent = "the server has stopped";
    }
    setTimeout(poll, document.hidden ? IDLE_MS : next);
  };
  poll();
})();
