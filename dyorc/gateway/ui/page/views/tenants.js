// Who uses the server, and how much of it.
import { html } from "../html.js";
import { bytes, count, number } from "../format.js";
import { useLive } from "../live.js";
import { Empty, Head, Panel, Table } from "../widgets/basics.js";

const COLUMNS = {
  in_flight: ["#In flight", count], in_flight_bytes: ["#Bytes in flight", bytes], requests_total: ["#Requests", count],
  requests_per_s: ["#Requests/s", number], refused_total: ["#Refused", count], failed_total: ["#Failed", count], weight: ["#Weight", number],
}; // prettier-ignore

export function Tenants() {
  const { now } = useLive();
  const all = Object.entries(now?.tenants ?? {}).sort(([a], [b]) => a.localeCompare(b));
  const shown = Object.keys(COLUMNS).filter((name) => all.some(([, found]) => found[name] !== undefined));
  return html`<div class="view">
    <${Head} title="Tenants" note="Clients with API keys of their own; without a keys file all clients are one" />
    <${Panel} title="In use now">
      ${all.length ? html`<${Table} label="Tenants" head=${["Tenant", ...shown.map((name) => COLUMNS[name][0])]}>
        ${all.map(([tenant, found]) => html`<tr key=${tenant}><th scope="row">${tenant || "everybody"}</th>
          ${shown.map((name) => html`<td class="num">${COLUMNS[name][1](found[name])}</td>`)}</tr>`)}
      <//>` : html`<${Empty}>${now ? "No tenant has anything in flight." : "…"}<//>`}
    <//>
    <${Cells} cells=${now?.cells} />
  </div>`;
}

function Cells({ cells }) {
  if (!cells?.length) return null;
  return html`<${Panel} title="Processes" note="cells that share the port">
    <${Table} label="Processes" head=${["#Cell", "#Process", "#In flight"]}>
      ${cells.map((cell) => html`<tr key=${cell.cell}><td class="num">${cell.cell}</td><td class="num">${cell.pid ?? html`<span class="bad">silent</span>`}</td>
        <td class="num">${count(cell.in_flight ?? cell.num_requests)}</td></tr>`)}
    <//>
  <//>`;
}
