// A chart over the last minutes of live values.
import { html, useMemo } from "../html.js";
import { clock } from "../format.js";
import { live } from "../live.js";
import { Alternative } from "./basics.js";
import { Chart, Keys } from "./chart.js";

const SHOWN_S = 180;

/** lines: [{name, colour, of: (live value) => number | null, kind, fill, dash}]. */
export function TimeSeries({ label, lines, format, height = 150, unit = "" }) {
  const now = live.now;
  const data = useMemo(() => {
    const past = live.past.filter(({ at_s }) => at_s >= (now?.at_s ?? 0) - SHOWN_S);
    return [past.map(({ at_s }) => at_s), ...lines.map(({ of }) => past.map((value) => of(value) ?? null))];
  }, [now, lines]);
  const end = now?.at_s ?? Date.now() / 1000;
  const series = lines.map(({ name, colour, kind, fill, dash }) => ({ label: name, colour, kind, fill, dash }));
  return html`<${Chart} label=${label} data=${data} series=${series} height=${height} isTime=${true} yValues=${format}
      xRange=${(_, low, high) => [Math.min(low ?? end, (high ?? end) - 60), high ?? end]} />
    <${Keys} keys=${lines.map(({ name, colour, of }) => ({ name, colour, value: now ? format(of(now)) : "–" }))} />
    <${Alternative} label=${label} head=${["Time", ...lines.map(({ name }) => `#${name}${unit}`)]}
      rows=${() => data[0].map((at, index) => [clock(at), ...lines.map((_, line) => format(data[line + 1][index]))]).reverse().slice(0, 60)} />`;
}
