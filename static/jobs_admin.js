// Fragments that refresh while somebody looks, charts, and the age of what is shown. Every page works without it.
"use strict";

(() => {
  const AFTER_FAILURE_S = 15;
  let paused = false;

  // Live fragments: <section class="live" hx-get="?fragment=name" hx-trigger="poll" data-every="5">

  const age = (element) => (Date.now() - Number(element.dataset.readAt || Date.now())) / 1000;

  const span = (seconds) => {
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    return seconds < 3600 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
  };

  // A reader who marks text, types or moves by keyboard inside a fragment keeps it as it is.
  const inUse = (element) => {
    const chosen = document.getSelection();
    if (element.contains(document.activeElement)) return true;
    return Boolean(chosen && !chosen.isCollapsed && element.contains(chosen.anchorNode));
  };

  const tick = () => {
    for (const element of document.querySelectorAll(".live")) {
      const place = element.querySelector("[data-age]");
      if (place) {
        const state = element.dataset.failed ? ", cannot refresh" : paused ? ", paused" : "";
        place.textContent = `${span(age(element))} old${state}`;
      }
      const every = Number(element.dataset.every) || 5;
      const wait = element.dataset.failed ? Math.max(every, AFTER_FAILURE_S) : every;
      const since = (Date.now() - Number(element.dataset.askedAt)) / 1000;
      if (!paused && !document.hidden && since >= wait && !inUse(element)) ask(element);
    }
  };

  const ask = (element) => {
    element.dataset.askedAt = Date.now();
    htmx.trigger(element, "poll");
  };

  const start = (element) => {
    element.dataset.askedAt = element.dataset.readAt = Date.now();
  };

  document.addEventListener("htmx:beforeSwap", (event) => {
    const element = event.detail.elt;
    if (!element.matches(".live, .preview")) return;
    // A redirect may have led to the log-in page: only what says that it is a fragment takes its place.
    if (event.detail.xhr.getResponseHeader("X-Fragment") === null) {
      event.detail.shouldSwap = false;
      element.dataset.failed = "1";
    }
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const element = event.detail.elt;
    if (!element.classList.contains("live")) return;
    delete element.dataset.failed;
    element.dataset.readAt = Date.now();
    drawAll(element);
  });
  for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(name, (event) => {
      if (event.detail.elt.classList.contains("live")) event.detail.elt.dataset.failed = "1";
    });
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });

  // Charts: <figure class="chart" data-chart="JSON"><div class="plot"></div>…</figure>

  const DASHES = [[], [8, 4], [2, 3], [12, 4, 2, 4], [5, 2], [1, 2]];
  const drawn = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const series = (line, index) => ({
    label: line.label,
    stroke: colour(`--line-${(index % 6) + 1}`),
    width: 2,
    dash: DASHES[index % DASHES.length],
    spanGaps: false,
    points: { show: line.values.filter((value) => value !== null).length < 3 },
  });

  // Instants as everywhere on the page: in UTC, by hour and minute; so there are no ticks between minutes.
  const MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080];
  const clock = (seconds) => (seconds === null ? "" : new Date(seconds * 1000).toISOString().slice(11, 16));

  const options = (figures, width) => {
    const axis = { stroke: colour("--body-quiet-color"), grid: { stroke: colour("--hairline-color"), width: 1 } };
    const short = (value) => (value === null ? "" : String(Number(value.toPrecision(6))));
    return {
      width, height: 200,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      scales: { y: figures.log ? { distr: 3 } : { range: (u, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [
        { ...axis, incrs: MINUTES.map((minutes) => minutes * 60), values: (u, ticks) => ticks.map(clock) },
        { ...axis, size: 60, values: (u, ticks) => ticks.map(short) },
      ],
      series: [{ label: "Time (UTC)", value: (u, at) => clock(at) }, ...figures.lines.map(series)],
      cursor: { drag: { x: false, y: false } },
    };
  };

  // Of a single instant uPlot makes a day, whatever range it is told (it asks for none of x): half an hour stands beside
  // it, in which nothing is known.
  const BESIDE_S = 1800;
  const widened = (at, lines) => {
    if (at.length !== 1) return [at, ...lines];
    return [[at[0] - BESIDE_S, at[0], at[0] + BESIDE_S], ...lines.map(([value]) => [null, value, null])];
  };

  const draw = (figure) => {
    const place = figure.querySelector(".plot");
    if (!place || typeof uPlot === "undefined") return;
    const figures = JSON.parse(figure.dataset.chart);
    if (figures.at.length === 0 || place.clientWidth === 0) return;
    place.replaceChildren();
    // A logarithmic scale has no zero.
    const values = figures.lines.map((line) => line.values.map((v) => (figures.log && v !== null ? Math.max(v, 0.1) : v)));
    drawn.set(figure, new uPlot(options(figures, place.clientWidth), widened(figures.at, values), place));
  };

  const drawAll = (root) => {
    for (const figure of drawn.keys()) if (!figure.isConnected) { drawn.get(figure).destroy(); drawn.delete(figure); }
    for (const figure of root.querySelectorAll("[data-chart]")) draw(figure);
  };

  const redraw = () => drawAll(document);

  // Forms that show what they would do: <form data-preview="#id"> has that fragment asked for anew as it is filled in:
  // <section class="preview" hx-get="?fragment=preview" hx-trigger="preview" hx-include="form">

  let waiting = 0;
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-preview]");
    if (!form) return;
    window.clearTimeout(waiting);
    waiting = window.setTimeout(() => htmx.trigger(form.dataset.preview, "preview"), 250);
  });

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector("[data-live-toggle]");
    if (button && document.querySelector(".live")) {
      button.hidden = false;
      button.addEventListener("click", () => {
        paused = !paused;
        button.textContent = paused ? "Go on refreshing" : "Stop refreshing";
        tick();
      });
    }
    document.querySelectorAll(".live").forEach(start);
    drawAll(document);
    window.setInterval(tick, 1000);
    let width = window.innerWidth;
    window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; redraw(); } });
    new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  });
})();
