// Charts, drawn by uPlot (a global, from its own script). Colours come from the page's custom properties.
import { html, useEffect, useLayoutEffect, useRef } from "../html.js";

const { uPlot } = globalThis;
// A whole number of px: uPlot looks for one, to draw it larger on dense screens.
const FONT = "12px system-ui, 'DejaVu Sans', sans-serif";

/** The colour behind a custom property, as the canvas needs it. */
export function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const faint = (text, alpha) => text.replace(/^rgb\((.*)\)$/, (_, channels) => `rgba(${channels}, ${alpha})`);

/**
 * One chart.
 *
 * series: [{label, colour, kind: "line" | "step" | "bars" | "points", fill, dash}]; data: [xs, ...ys] as uPlot has it.
 * The height is fixed, so that nothing moves when data come.
 */
export function Chart({ label, data, series, height = 150, xValues, yValues, isTime = false, isWhole = false, yMin = 0, xRange }) {
  const box = useRef(null);
  const plot = useRef(null);
  const latest = useRef(data);
  latest.current = data;
  const shape = JSON.stringify([series, height, isTime]);
  useLayoutEffect(() => {
    const make = () => {
      plot.current?.destroy();
      const options = optionsOf({ series, height, xValues, yValues, isTime, isWhole, yMin, xRange, width: box.current.clientWidth || 300 });
      plot.current = new uPlot(options, latest.current, box.current);
    };
    make();
    const sizes = new ResizeObserver(() => {
      const width = box.current.clientWidth;
      if (width && width !== plot.current.width) plot.current.setSize({ width, height });
    });
    sizes.observe(box.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", make);
    addEventListener("themechange", make);
    return () => {
      sizes.disconnect();
      scheme.removeEventListener("change", make);
      removeEventListener("themechange", make);
      plot.current.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<div class="chart" role="img" aria-label=${label} ref=${box} style=${{ height: `${height}px` }}></div>`;
}

function optionsOf({ series, height, width, xValues, yValues, isTime, isWhole, yMin, xRange }) {
  const grid = { stroke: faint(colour("line-strong"), 0.22), width: 1 };
  const axis = { stroke: colour("muted"), font: FONT, grid, ticks: { show: false } };
  return {
    width,
    height,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 26, 0, 0],
    scales: { x: { time: isTime, range: xRange }, y: { range: (_, low, high) => [Math.min(yMin, low ?? 0), niceTop(high)] } },
    axes: [
      { ...axis, grid: { show: false }, size: 26, values: xValues ?? (isTime ? times : undefined), space: isTime ? 70 : 34 },
      { ...axis, size: 52, incrs: isWhole ? WHOLE : undefined, values: yValues ? (_, ticks) => ticks.map(yValues) : undefined, space: 26 },
    ],
    series: [{}, ...series.map(seriesOf)],
  };
}

const WHOLE = [1, 10, 100, 1000, 10_000].flatMap((power) => [power, 2 * power, 5 * power]);
const niceTop = (high) => (high > 0 ? high * 1.12 : 1);
const times = (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString("en-GB"));

function seriesOf({ label, colour: name, kind = "line", fill = false, dash }) {
  const stroke = colour(name);
  const common = { label, stroke, width: 2, dash, points: { show: true, size: 5, fill: stroke, width: 0, filter: alone } };
  if (fill) common.fill = faint(stroke, 0.14);
  if (kind === "bars") return { ...common, width: 0, fill: stroke, paths: uPlot.paths.bars({ size: [0.72, 46], radius: 0.12 }) };
  if (kind === "points") return { ...common, paths: () => null, points: { show: true, size: 7, fill: stroke, width: 0 } };
  if (kind === "step") return { ...common, paths: uPlot.paths.stepped({ align: 1 }) };
  return common;
}

/** The indices of values without a neighbour, which no line shows. */
function alone(plot, index) {
  const values = plot.data[index];
  const isThere = (at) => values[at] !== null && values[at] !== undefined;
  const joins = (at, step) => {
    for (at += step; values[at] === undefined && at >= 0 && at < values.length; at += step); // those are drawn across
    return isThere(at);
  };
  return values.flatMap((_, at) => (isThere(at) && !joins(at, -1) && !joins(at, 1) ? [at] : []));
}

/** What the lines of a chart mean, with their latest values. */
export function Keys({ keys }) {
  return html`<div class="keys">
    ${keys.map(
      ({ name, colour: key, value }) =>
        html`<span class="key"><i style=${{ color: `var(--${key})` }}></i>${name}${value !== undefined && html` <b>${value}</b>`}</span>`,
    )}
  </div>`;
}
