// Durable jobs: the waiting, running and ended ones; cancels a job.
import { html, useState } from "../html.js";
import { ago, bytes, count, seconds } from "../format.js";
import { post } from "../api.js";
import { useLive } from "../live.js";
import { replace, to } from "../route.js";
import { Choice, Empty, Failure, Figures, Head, Panel, State, Table, usePolled } from "../widgets/basics.js";

const STATES = { "": "All", queued: "Queued", running: "Running", succeeded: "Succeeded", failed: "Failed", cancelled: "Cancelled" };

export function Jobs({ route }) {
  const state = route.query.get("state") ?? "";
  const { now } = useLive();
  const [found, error, again] = usePolled(`v1/jobs?limit=100${state && `&state=${state}`}`, 2000);
  const report = now?.jobs ?? {};
  return html`<div class="view">
    <${Head} title="Jobs" note="Requests that are answered later and survive a restart">
      <${Choice} label="State" value=${state} options=${STATES} onChange=${(value) => replace(to("jobs", { state: value }))} />
    <//>
    ${report.max_running !== undefined && html`<${Figures} label="All jobs" figures=${[
      { name: "Running", value: count(report.num_running) }, { name: "at most", value: count(report.max_running) },
      { name: "Stored", value: bytes(report.num_bytes) }, { name: "at most", value: bytes(report.max_bytes) },
      { name: "Store", value: report.is_store_down ? "down" : "up", tone: report.is_store_down ? "bad" : "ok" },
    ]} />`}
    <${Panel} title="Latest jobs">
      ${error && !found ? html`<${Failure} error=${error} />` : !found ? html`<${Empty}>…<//>` : !found.jobs.length ? html`<${Empty}>None.<//>`
        : html`<${Table} label="Jobs" head=${["Job", "Model", "State", "#Created", "#Waited", "#Took", "#Attempts", "Error", ""]}>
          ${found.jobs.map((job) => html`<${Job} key=${job.id} job=${job} again=${again} />`)}<//>`}
    <//>
  </div>`;
}

function Job({ job, again }) {
  const [isAsked, setAsked] = useState(false);
  const isOver = !["queued", "running"].includes(job.state);
  const cancel = async () => {
    setAsked(true);
    await post(`v1/jobs/${encodeURIComponent(job.id)}/cancel`, {}).catch(() => setAsked(false));
    again();
  };
  return html`<tr>
    <td class="mono nowrap">${isOver ? html`<a href=${to("requests", job.id)}>${job.id.slice(0, 12)}</a>` : job.id.slice(0, 12)}</td>
    <td>${job.model_name}</td>
    <td><${State} state=${job.state} /></td>
    <td class="num">${ago(job.created_s)}</td>
    <td class="num">${seconds(job.started_s ? job.started_s - job.created_s : null)}</td>
    <td class="num">${seconds(job.finished_s && job.started_s ? job.finished_s - job.started_s : null)}</td>
    <td class="num">${count(job.num_attempts)}</td>
    <td class="wide">${job.error?.error ?? ""}</td>
    <td>${!isOver && html`<button class="button quiet" disabled=${isAsked} onClick=${cancel}>Cancel<span class="only-read"> job ${job.id}</span></button>`}</td>
  </tr>`;
}
