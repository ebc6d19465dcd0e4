"use strict";
(() => {
  const conversation = document.getElementById("conversation") || document.querySelector(".period.alone");
  if (!conversation) return;
  const all = (selector, inside = document) => Array.from(inside.querySelectorAll(selector));

  // A period's chat comes when the period is opened for the first time.
  const coming = new Map();
  const fill = (period) => {
    const address = period.dataset.part;
    if (!address) return Promise.resolve();
    if (!coming.has(period)) {
      coming.set(period, fetch(address).then((answer) => {
        if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
        return answer.text();
      }).then((text) => {
        period.querySelector(".chat").innerHTML = text;
        delete period.dataset.part;
      }).catch((flaw) => {
        coming.delete(period);
        period.querySelector(".chat").textContent = `This period cannot be shown: ${flaw.message}`;
      }));
    }
    return coming.get(period);
  };
  const open = (period) => {
    if (period.tagName === "DETAILS") period.open = true;
    return fill(period);
  };
  for (const period of all("details.period")) {
    period.addEventListener("toggle", () => { if (period.open) fill(period); });
    if (period.open) fill(period);
  }

  const show = (element) => {
    element.scrollIntoView({ block: "start" });
    const focused = element.tagName === "DETAILS" ? element.querySelector("summary") : element;
    focused.focus({ preventScroll: true });
  };
  // An address such as #p12t3 opens its period first.
  const follow = async () => {
    const found = /^#(p\d+)(t\d+\w*)?$/.exec(location.hash);
    const period = found && document.getElementById(found[1]);
    if (!period) return;
    await open(period);
    show(document.getElementById(location.hash.slice(1)) || period);
  };
  addEventListener("hashchange", follow);
  follow();

  const periods = () => all(".period", document);
  const at = (elements) => {
    const line = 90;
    let place = -1;
    elements.forEach((element, i) => { if (element.getBoundingClientRect().top < line) place = i; });
    return place;
  };
  const turn = async (step) => {
    const turns = () => all(".period.alone .turn, details.period[open] .turn");
    const here = turns();
    const place = at(here) + step;
    if (here[place]) return show(here[place]);
    if (!all("details.period").length) return undefined;
    // Behind the last turn of what is open, the next period is opened; before the first, the one before.
    const folded = periods();
    const next = folded[Math.min(Math.max(at(folded) + step, 0), folded.length - 1)];
    await open(next);
    const within = all(".turn", next);
    return show((step > 0 ? within[0] : within[within.length - 1]) || next);
  };
  const period = async (step) => {
    const link = document.querySelector(step > 0 ? "a[rel=next]" : "a[rel=prev]");
    if (link) return link.click();
    const here = periods();
    const next = here[Math.min(Math.max(at(here) + step, 0), here.length - 1)];
    await open(next);
    return show(next);
  };
  const keys = { j: () => turn(1), k: () => turn(-1), "]": () => period(1), "[": () => period(-1) };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
})();
