// Where the time of the slowest requests goes, beside typical ones: what makes the difference comes first.
import { html } from "../html.js";
import { count, duration, plural, share } from "../format.js";
import { to } from "../route.js";
import { stageOf } from "../words.js";
import { Panel, Table, usePolled } from "./basics.js";

const SHARE = 0.01;
const REFRESH_MS = 5000; // the server diagnoses some hundred requests for each answer

export function Tail({ workflow }) {
  const [tail] = usePolled(`tail?${new URLSearchParams({ share: SHARE, ...(workflow && { workflow }) })}`, REFRESH_MS);
  if (!tail?.num_slowest) return null;
  const note = `${count(tail.num_slowest)} of ${plural(tail.num_requests, "request")} took ${duration(tail.from_ms)} or more; half of all ${duration(tail.median_ms)} or less`;
  return html`<${Panel} title=${`The slowest ${share(SHARE)}`} note=${note} width="tail">
    <${Bars} stages=${tail.stages} />
    <${Table} label="Stages of the slowest and of typical requests" head=${["Stage", "#Slowest", "#Typical", "#More by", "#Most of it in"]}>
      ${tail.stages.map((each) => html`<tr key=${each.stage} data-stage=${each.stage}>
        <th scope="row"><span class="key"><i class="swatch" style=${{ background: `var(--${stageOf(each.stage)[0]})` }}></i> ${stageOf(each.stage)[1]}${each.program ? ` of ${each.program}` : ""}</span></th>
        <td class="num">${duration(each.slowest_ms)}</td>
        <td class="num">${duration(each.typical_ms)}</td>
        <td class="num">${duration(each.slowest_ms - each.typical_ms)}</td>
        <td class="num">${each.num_caused ? plural(each.num_caused, "request") : "–"}</td>
      </tr>`)}
    <//>
    <p class="small muted">The slowest: ${tail.slowest.map(({ request_id: id, duration_ms: ms }, at) => html`${at ? ", " : ""}<a key=${id} class="mono" href=${to("requests", id)}>${id}</a> ${duration(ms)}`)}</p>
  <//>`;
}

/** A bar for each of the two, on the same scale: the typical one is as short as its requests. */
function Bars({ stages }) {
  const sums = { slowest: sum(stages, "slowest_ms"), typical: sum(stages, "typical_ms") };
  const longest = Math.max(sums.slowest, sums.typical) || 1;
  return html`<dl class="tail-bars" aria-hidden="true">
    ${Object.entries(sums).map(([kind, ms]) => html`<div key=${kind}><dt>${kind}</dt>
      <dd><div class="stages" style=${{ width: `${(100 * ms) / longest}%` }}>
        ${stages.filter((each) => each[`${kind}_ms`] > 0).map((each) => html`<i key=${each.stage} title=${`${stageOf(each.stage)[1]}: ${duration(each[`${kind}_ms`])}`} style=${{ flexGrow: each[`${kind}_ms`], background: `var(--${stageOf(each.stage)[0]})` }}></i>`)}
      </div></dd></div>`)}
  </dl>`;
}

const sum = (stages, key) => stages.reduce((total, each) => total + each[key], 0);
