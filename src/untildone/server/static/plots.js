// Spend and checks over time. Colours are those of the page, so that they change with it.
"use strict";

(() => {
  const figures = [...document.querySelectorAll("[data-plot]")];
  if (!figures.length || typeof uPlot === "undefined") return;
  const source = figures[0].dataset.src;
  const plots = new Map();
  let data = null, asking = false, wanted = false;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const columns = (points) => [points.map((one) => one[0]), points.map((one) => one[1])];
  const money = (value) => `$${value >= 10 ? value.toFixed(0) : value.toFixed(2)}`;

  function moments(plot, splits) {
    const span = plot.scales.x.max - plot.scales.x.min, seconds = span < 300 ? { second: "2-digit" } : {};
    const format = new Intl.DateTimeFormat(undefined, span > 86400 * 1.5 ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", ...seconds, hourCycle: "h23" });
    const told = splits.map((at) => format.format(new Date(at * 1000)));
    return told.map((text, at) => (text === told[at - 1] ? "" : text));
  }

  function options(figure, stroke, format, top, stepped) {
    const grid = { stroke: colour("line"), width: 1 }, font = "11px system-ui, sans-serif";
    return {
      width: Math.max(200, figure.clientWidth), height: 130, cursor: { y: false }, legend: { show: false },
      scales: { y: { range: (_, low, high) => [0, Math.max(top || 0, high, 0.0001) * 1.08] } },
      axes: [
        { stroke: colour("soft"), grid: { show: false }, ticks: grid, font, size: 28, space: 60, values: moments },
        { stroke: colour("soft"), grid, ticks: { show: false }, font, size: 44, values: (_, ticks) => ticks.map(format) },
      ],
      series: [{}, {
        stroke: colour(stroke), width: 2, fill: colour(`${stroke}-soft`), points: { size: 5, fill: colour("surface") },
        paths: stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
      }],
    };
  }

  function say(figure, text) {
    let note = figure.querySelector(".plot-empty");
    if (!note) figure.append(note = Object.assign(document.createElement("p"), { className: "plot-empty" }));
    note.textContent = text;
  }

  function draw(figure, points, stroke, format, top, stepped, empty, lone) {
    plots.get(figure)?.destroy();
    plots.delete(figure);
    figure.querySelector(".plot-empty")?.remove();
    if (points.length < 2) {
      say(figure, points.length ? lone(points[0][1]) : empty);
      return;
    }
    const plot = new uPlot(options(figure, stroke, format, top, stepped), columns(points), figure);
    plot.root.setAttribute("role", "img");
    plot.root.setAttribute("aria-label", `${figure.querySelector("figcaption").textContent}: ${format(points[points.length - 1][1])} at the end`);
    plots.set(figure, plot);
  }

  function drawAll() {
    if (!data) return;
    for (const figure of figures) {
      if (figure.dataset.plot === "spend") draw(figure, data.spend || [], "accent", money, data.budget && data.spend.length && data.budget < 3 * data.spend[data.spend.length - 1][1] ? data.budget : 0, true, "Nothing was spent yet.", (value) => `${money(value)} so far`);
      else draw(figure, data.checks || [], "good", (value) => `${value % 1 ? "" : value}`, data.most, true, "No checks were run yet.", (value) => `${value} of ${data.most} when they were run, once so far`);
    }
  }

  async function ask() {
    if (asking) { wanted = true; return; }
    asking = true;
    try {
      const answer = await fetch(source);
      const text = answer.ok ? await answer.text() : "";
      if (text && text !== ask.last) {
        ask.last = text;
        data = JSON.parse(text);
        drawAll();
      }
    } catch { /* The stream asks again when the server is back. */ }
    await new Promise((done) => setTimeout(done, 3000));
    asking = false;
    if (wanted) { wanted = false; ask(); }
  }

  document.addEventListener("untildone:plots", ask);
  document.addEventListener("untildone:theme", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  let width = 0, timer = 0;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { if (figures[0].clientWidth !== width) { width = figures[0].clientWidth; drawAll(); } }, 150);
  });
  ask();
})();
