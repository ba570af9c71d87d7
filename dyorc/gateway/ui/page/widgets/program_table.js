// Programs, one in a row.
import { html } from "../html.js";
import { count, duration, number, share } from "../format.js";
import { to } from "../route.js";
import { Empty, State, Table } from "./basics.js";

export const meanBatch = ({ calls_total, batches_total }) => (batches_total ? calls_total / batches_total : null);
export const wasted = ({ useful_s = 0, wasted_s = 0 }) => (useful_s + wasted_s ? wasted_s / (useful_s + wasted_s) : null);

const SHORT = ["Program", "State", "#Replicas", "#Calls/s", "#Waiting", "#Alone"];
const LONG = ["Program", "State", "#Replicas", "#Calls/s", "#Waiting", "#Running", "#Calls", "#Mean batch", "#One call alone", "#Guesses run", "#Wasted time"];

export function ProgramTable({ programs, isShort = false }) {
  const all = Object.entries(programs ?? {}).sort(([a], [b]) => a.localeCompare(b));
  if (!all.length) return html`<${Empty}>${programs ? "None that this key may see." : "…"}<//>`;
  return html`<${Table} label="Programs" head=${isShort ? SHORT : LONG}>
    ${all.map(([name, found]) => html`<tr key=${name}>
      <th scope="row"><a href=${to("programs", name)}>${name}</a></th>
      <td><${State} state=${found.state} /></td>
      <td class="num">${replicasOf(found)}</td>
      <td class="num">${number(found.calls_per_s)}</td>
      <td class="num ${found.num_queued > 100 ? "warn" : ""}">${count(found.num_queued)}</td>
      ${!isShort && html`<td class="num">${count(found.num_running)}</td>
        <td class="num" data-calls=${name}>${count(found.calls_total)}</td>
        <td class="num">${number(meanBatch(found))}</td>`}
      <td class="num">${alone(found)}</td>
      ${!isShort && html`<td class="num">${count(found.num_guesses)}</td><td class="num">${share(wasted(found))}</td>`}
    </tr>`)}
  <//>`;
}

function replicasOf({ replicas, num_wanted }) {
  const num = replicas.filter(({ state }) => state === "ready").length;
  return num === num_wanted ? count(num) : `${num} of ${num_wanted}`;
}

const alone = ({ latency_fit: fit }) => duration(fit?.base_ms == null ? null : fit.base_ms + fit.per_call_ms);
