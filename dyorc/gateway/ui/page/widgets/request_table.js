// A few requests, one in a row, for panels.
import { html } from "../html.js";
import { ago, duration } from "../format.js";
import { to } from "../route.js";
import { causeText, stageOf } from "../words.js";
import { State, Table } from "./basics.js";

export const addressOf = (request) => to("requests", request.request_id ?? String(request.number));

export function RequestTable({ requests }) {
  return html`<${Table} label="Requests" head=${["Request", "Outcome", "#Took", "Mostly", "#Ago"]}>
    ${requests.map((request) => html`<tr key=${`${request.cell} ${request.number}`}>
      <td><a class="mono" href=${addressOf(request)}>${shortId(request)}</a></td>
      <td><${State} state=${request.outcome} isError=${request.outcome !== "ok"} /></td>
      <td class="num">${duration(request.duration_ms)}</td>
      <td class="nowrap"><${Cause} kind=${request.cause} /></td>
      <td class="num muted">${ago(request.arrived_s)}</td>
    </tr>`)}
  <//>`;
}

export function Cause({ kind }) {
  if (!kind) return html`<span class="muted">–</span>`;
  return html`<span class="key"><i class="swatch" style=${{ background: `var(--${stageOf(kind)[0]})` }}></i> ${causeText(kind)}</span>`;
}

/** Long ids are cut in the middle of a table; the whole one is on the request's own view. */
export function shortId({ request_id, number }) {
  const id = request_id ?? `#${number}`;
  return id.length > 13 ? `${id.slice(0, 12)}…` : id;
}
