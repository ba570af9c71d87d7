// One program: what its replicas do, how its batches are, what they cost, and what guessing brings.
import { html, useMemo } from "../html.js";
import { ago, bytes, count, duration, number, parts, seconds, share, tick } from "../format.js";
import { useLive } from "../live.js";
import { to } from "../route.js";
import { reasonText } from "../words.js";
import { Alternative, Empty, Figures, Head, Panel, State, Table } from "../widgets/basics.js";
import { Chart, Keys } from "../widgets/chart.js";
import { meanBatch, wasted } from "../widgets/program_table.js";
import { ReplicaSeries } from "../widgets/replica_series.js";
import { TimeSeries } from "../widgets/series.js";

export function Program({ route }) {
  const name = route.rest[0];
  const { now } = useLive();
  const found = now?.programs[name];
  if (!found) return html`<div class="view"><${Head} title=${name} /><${Empty}>${now ? "There is no such program." : "…"}<//></div>`;
  const loads = [
    { name: "calls/s", colour: "do-compute", column: "calls_per_s", of: (value) => value.programs[name]?.calls_per_s, fill: true },
    { name: "waiting", colour: "do-queue", column: "num_queued", of: (value) => value.programs[name]?.num_queued },
  ];
  return html`<div class="view">
    <${Head} title=${name} note=${html`<a href=${to("programs")}>Programs</a>`}>
      <${State} state=${found.state} />
      <a class="button" href=${to("try", name)}>Try it</a>
    <//>
    <${ProgramFigures} name=${name} found=${found} />
    <div class="grid stretch">
      <${Panel} title="Calls" note="per second, and waiting" width="w6"><${TimeSeries} label="Calls of ${name}" lines=${loads} about=${{ program: name }} format=${number} height=${170} /><//>
      <${BatchSizes} found=${found} />
      <${Cost} found=${found} />
      <${Reasons} found=${found} />
      <${Guesses} found=${found} />
      <${Panel} title="Replicas over time" width="w6"><${ReplicaSeries} name=${name} height=${170} /><//>
    </div>
    <${Replicas} found=${found} />
  </div>`;
}

function ProgramFigures({ name, found }) {
  const fit = found.latency_fit;
  const [value, unit] = parts(fit?.base_ms == null ? null : fit.base_ms + fit.per_call_ms);
  return html`<${Figures} label="Figures of ${name}" figures=${[
    { name: "Calls/s", value: number(found.calls_per_s) },
    { name: "Waiting", value: count(found.num_queued), tone: found.num_queued > 100 ? "warn" : "" },
    { name: "Running", value: count(found.num_running) },
    { name: "One call alone", value, unit },
    { name: "Mean batch", value: number(meanBatch(found)) },
    { name: "Calls", value: count(found.calls_total), id: "calls_total", title: "Since the server started" },
    { name: "Batches", value: count(found.batches_total), id: "batches_total", title: "Since the server started" },
  ]} />`;
}

function BatchSizes({ found }) {
  const sizes = Object.entries(found.batch_sizes ?? {}).map(([size, num]) => [Number(size), num]).sort(([a], [b]) => a - b);
  const most = sizes.at(-1)?.[0] ?? 1;
  // One bar for each size up to the largest; beyond 48, groups of the same width, so that bars stay wide enough to be read.
  const step = Math.ceil(most / 48);
  const data = useMemo(() => {
    const bars = Array(Math.ceil(most / step)).fill(0);
    for (const [size, num] of sizes) bars[Math.ceil(size / step) - 1] += num;
    return [bars.map((_, index) => (index + 1) * step), bars];
  }, [JSON.stringify(sizes)]);
  return html`<${Panel} title="Batch sizes" note=${step > 1 ? `in groups of ${step}` : "batches by their number of calls"} width="w6">
    ${sizes.length ? html`<${Chart} key=${`${step} ${most}`} label="Batches by size" data=${data} height=${170} series=${[{ label: "batches", colour: "do-compute", kind: "bars" }]}
        yValues=${number} xRange=${() => [0.2, Math.max(most, 3) + step * 0.8]} />
      <${Keys} keys=${[{ name: "batches", colour: "do-compute", value: count(found.batches_total) }, { name: "mean size", colour: "line-strong", value: number(meanBatch(found)) }]} />
      <${Alternative} label="Batches by size" head=${["#Calls", "#Batches"]} rows=${() => sizes.map(([size, num]) => [count(size), count(num)])} />`
      : html`<${Empty}>No batch yet.<//>`}
  <//>`;
}

function Cost({ found }) {
  const { base_ms: base, per_call_ms: each, points = [] } = found.latency_fit ?? {};
  const most = Math.max(1, ...points.map(([size]) => size));
  const data = useMemo(() => {
    const known = new Map(points);
    const xs = [...new Set([0, ...known.keys(), most])].sort((a, b) => a - b);
    return [xs, xs.map((size) => known.get(size) ?? null), xs.map((size) => (base == null ? null : base + each * size))];
  }, [JSON.stringify(found.latency_fit)]);
  return html`<${Panel} title="What a batch costs" note="T(n): time of a batch of n calls" width="w6">
    ${points.length ? html`<${Chart} label="Time of a batch by its size" data=${data} height=${170} yValues=${tick}
        series=${[{ label: "measured", colour: "do-compute", kind: "points" }, { label: "fit", colour: "do-queue", dash: [5, 4] }]}
        xRange=${() => [0, most * 1.06]} />
      <${Keys} keys=${[{ name: "measured mean", colour: "do-compute" }, { name: "fit", colour: "do-queue", value: base == null ? "–" : `${duration(base)} + n · ${duration(each)}` }]} />
      <${Alternative} label="Time of a batch by its size" head=${["#Calls", "#Measured", "#Fit"]}
        rows=${() => points.map(([size, ms]) => [count(size), duration(ms), duration(base + each * size)])} />`
      : html`<${Empty}>No batch yet.<//>`}
  <//>`;
}

function Reasons({ found }) {
  const all = Object.entries(found.form_reasons ?? {}).filter(([, num]) => num).sort(([, a], [, b]) => b - a);
  const sum = all.reduce((total, [, num]) => total + num, 0);
  return html`<${Panel} title="Why batches were formed" width="w6">
    ${all.length ? html`<${Table} label="Why batches were formed" head=${["Reason", "#Batches", "#Share"]}>
      ${all.map(([reason, num]) => html`<tr key=${reason}>
        <td class="wide"><${Bar} ratio=${num / sum} colour="do-compute">${reasonText(reason)}<//></td>
        <td class="num">${count(num)}</td><td class="num">${share(num / sum)}</td></tr>`)}
    <//>` : html`<${Empty}>No batch yet.<//>`}
  <//>`;
}

/** A text over a bar. */
function Bar({ ratio, colour, children }) {
  return html`<span class="bar-text"><i aria-hidden="true" style=${{ width: `${(ratio * 100).toFixed(1)}%`, background: `var(--${colour})` }}></i>${children}</span>`;
}

function Guesses({ found }) {
  const { num_guesses: made, num_committed: right, num_squashed: wrong, useful_s, wasted_s } = found;
  const rows = [
    ["Guesses run", count(made), ""],
    ["right", count(right), share(made ? right / made : null)],
    ["wrong", count(wrong), share(made ? wrong / made : null)],
    ["Time well spent", seconds(useful_s), share(wasted(found) == null ? null : 1 - wasted(found))],
    ["Time wasted", seconds(wasted_s), share(wasted(found))],
  ];
  return html`<${Panel} title="Guesses" note="calls run before it was certain that they are needed" width="w6">
    <${Table} label="Guesses" head=${["", "#Total", "#Share"]}>
      ${rows.map(([name, value, part]) => html`<tr key=${name}><th scope="row">${name}</th><td class="num">${value}</td><td class="num">${part}</td></tr>`)}
    <//>
  <//>`;
}

function Replicas({ found }) {
  return html`<${Panel} title="Replicas" note=${found.reason}>
    ${found.replicas.length ? html`<${Table} label="Replicas" head=${["Replica", "State", "#For", "#Load time", "Node", "#Process", "#Memory"]}>
      ${found.replicas.map((replica) => html`<tr key=${replica.id}>
        <th scope="row" class="mono">${replica.id}</th><td><${State} state=${replica.state} /></td>
        <td class="num">${ago(replica.since_s)}</td><td class="num">${seconds(replica.load_s)}</td>
        <td>${replica.node || "–"}</td><td class="num">${[replica.pid ?? "–", ...(replica.members ?? [])].join(" + ")}</td><td class="num">${bytes(replica.num_bytes)}</td></tr>`)}
    <//>` : html`<${Empty}>None. It is ${found.state}.<//>`}
  <//>`;
}
