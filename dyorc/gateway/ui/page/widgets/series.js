// A chart over time: what the server remembers, continued by what it says every second.
import { html, useEffect, useMemo, useState } from "../html.js";
import { get } from "../api.js";
import { clock, duration, plural, tick } from "../format.js";
import { live } from "../live.js";
import { Alternative } from "./basics.js";
import { Chart, Keys } from "./chart.js";

export const WINDOW_S = 180;
const PAUSE_S = 8;
const SECONDS_KEPT_S = 600; // beyond that the server remembers minutes

/** lines: [{name, colour, of: (live value) => number | null, column: its name in the history, kind, fill, dash}]; about: {program} or {workflow}. */
export function TimeSeries({ label, lines, about, format, height = 150, windowS = WINDOW_S, isWhole = false }) {
  const now = live.now;
  const remembered = useHistory(about, windowS);
  const data = useMemo(() => together(lines, remembered, windowS), [now, remembered, lines, windowS]);
  const end = now?.at_s ?? Date.now() / 1000;
  const series = lines.map(({ name, colour, kind, fill, dash }) => ({ label: name, colour, kind, fill, dash }));
  const text = label + (windowS > 3600 ? ", the last day" : `, the last ${plural(Math.round(windowS / 60), "minute")}`);
  return html`<${Chart} key=${windowS} label=${text} data=${data} series=${series} height=${height} isTime=${true} isWhole=${isWhole} yValues=${format === duration ? tick : format}
      xRange=${(_, low, high) => [(high ?? end) - windowS, high ?? end]} />
    <${Keys} keys=${lines.map(({ name, colour, of }) => ({ name, colour, value: now ? format(of(now)) : "–" }))} />
    <${Alternative} label=${text} head=${["Time", ...lines.map(({ name }) => `#${name}`)]}
      rows=${() => data[0].map((at, index) => [clock(at), ...lines.map((_, line) => format(data[line + 1][index]))]).reverse().slice(0, 60)} />`;
}

/** What the server remembers; asked for anew about as often as a chart of this length changes visibly. */
function useHistory(about, windowS) {
  const [found, setFound] = useState(null);
  const query = new URLSearchParams({ ...about, window_s: windowS }).toString();
  useEffect(() => {
    let isOld = false;
    const look = () => get(`history?${query}`).then((value) => isOld || setFound(value), () => {});
    look();
    const timer = windowS > WINDOW_S ? setInterval(look, windowS > SECONDS_KEPT_S ? 60_000 : 10_000) : 0;
    return () => {
      isOld = true;
      clearInterval(timer);
    };
  }, [query]);
  return found;
}

function together(lines, history, windowS) {
  const rows = lines.map(() => []);
  const times = [];
  const start = (live.now?.at_s ?? Date.now() / 1000) - windowS;
  const length = Math.max(0, ...Object.values(history?.values ?? {}).map((column) => column.length));
  for (let index = 0; index < length; index += 1) {
    const at = history.from_s + index * history.step_s;
    if (at < start) continue;
    times.push(at);
    lines.forEach(({ column }, line) => rows[line].push(history.values[column]?.[index] ?? null));
  }
  const last = times.at(-1) ?? start;
  for (const value of live.past) {
    if (value.at_s <= last + (history?.step_s ?? 0) / 2) continue;
    times.push(value.at_s);
    lines.forEach(({ of }, line) => rows[line].push(of(value) ?? null));
  }
  return withPauses(times, rows, PAUSE_S + 2 * (history?.step_s ?? 0));
}

/** Cuts lines where nothing was measured for longer than `pauseS`, and has them go on across shorter holes (undefined, for uPlot). */
export function withPauses(times, rows, pauseS) {
  const ends = times.flatMap((at, index) => (index && at - times[index - 1] > pauseS ? [index] : []));
  for (const index of ends.reverse()) {
    times.splice(index, 0, (times[index - 1] + times[index]) / 2);
    for (const row of rows) row.splice(index, 0, null);
  }
  for (const row of rows) {
    let last = -1;
    row.forEach((value, index) => {
      if (value === null) return;
      if (last >= 0 && times[index] - times[last] <= pauseS) row.fill(undefined, last + 1, index);
      last = index;
    });
  }
  return [times, ...rows];
}
