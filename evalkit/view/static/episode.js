"use strict";
(() => {
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
  document.addEventListener("toggle", (event) => {
    if (event.target.matches("details.period[open]")) fill(event.target);
  }, true);

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

  // Where the reader is: what has the focus, else what is at the top of the window.
  const current = (elements, selector) => {
    const focused = document.activeElement && document.activeElement.closest(selector);
    if (focused) return elements.indexOf(focused);
    let place = -1;
    elements.forEach((element, i) => { if (element.getBoundingClientRect().top < 90) place = i; });
    return place;
  };
  const beside = async (step) => {
    const periods = all(".period");
    const next = periods[Math.min(Math.max(current(periods, ".period") + step, 0), periods.length - 1)];
    await open(next);
    return next;
  };
  const turn = async (step) => {
    const periods = all(".period");
    const home = periods[Math.max(current(periods, ".period"), 0)];
    const within = home.tagName === "DETAILS" && !home.open ? [] : all(".turn", home);
    const next = within[within.length ? current(within, ".turn") + step : -1];
    if (next) return show(next);
    // Behind a period's last turn comes the next period, before its first the one before.
    const other = home.open === false ? home : await beside(step);
    await open(other);
    const there = all(".turn", other);
    return show(there[step > 0 ? 0 : there.length - 1] || other);
  };
  const period = async (step) => {
    const link = document.querySelector(step > 0 ? "a[rel=next]" : "a[rel=prev]");
    return link ? link.click() : show(await beside(step));
  };
  const keys = { j: () => turn(1), k: () => turn(-1), "]": () => period(1), "[": () => period(-1) };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (keys[event.key] && document.querySelector(".period")) { event.preventDefault(); keys[event.key](); }
  });
})();
