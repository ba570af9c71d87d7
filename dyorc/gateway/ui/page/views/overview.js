// What the server is doing now: one workflow's figures and graph, the programs, and what was slow lately.
import { html, useEffect, useRef, useState } from "../html.js";
import { count, duration, number, parts, plural } from "../format.js";
import { useLive } from "../live.js";
import { to } from "../route.js";
import { Choice, Empty, Failure, Figures, Head, Panel, usePolled } from "../widgets/basics.js";
import { Graph } from "../widgets/graph.js";
import { ProgramTable } from "../widgets/program_table.js";
import { RequestTable } from "../widgets/request_table.js";
import { TimeSeries } from "../widgets/series.js";

export function Overview() {
  const { now } = useLive();
  const [chosen, setChosen] = useState("");
  const names = Object.keys(now?.workflows ?? {}).sort();
  const workflow = names.includes(chosen) ? chosen : busiest(now) ?? "";
  const [graph, error] = usePolled(workflow && `graph?workflow=${encodeURIComponent(workflow)}`, 1000);
  const isBegun = useRef(false); // what stands below the graph waits for it once, so that it need not move
  isBegun.current ||= Boolean(graph || error || (now && !workflow));
  return html`<div class="view">
    <${Head} title="Overview" note=${summary(now)}>
      ${names.length > 1 &&
      (names.length <= 4
        ? html`<${Choice} label="Workflow" value=${workflow} options=${Object.fromEntries(names.map((name) => [name, name]))} onChange=${setChosen} />`
        : html`<label class="small muted">Workflow <select onChange=${(event) => setChosen(event.target.value)}>
            ${names.map((name) => html`<option selected=${name === workflow}>${name}</option>`)}</select></label>`)}
    <//>
    <${WorkflowFigures} name=${workflow} found=${now?.workflows?.[workflow]} />
    <${WorkflowGraph} workflow=${workflow} graph=${graph} error=${error} programs=${now?.programs} />
    ${isBegun.current && workflow && html`<${Traffic} key=${workflow} workflow=${workflow} />`}
    ${isBegun.current && html`<div class="grid stretch">
      <${Panel} title="Programs" note=${html`<a href=${to("programs")}>all figures</a>`} width="w6"><${ProgramTable} programs=${now?.programs} isShort=${true} /><//>
      <${Slowest} workflow=${workflow} />
    </div>`}
  </div>`;
}

/** The workflow with the most traffic, until the user chooses one. */
function busiest(now) {
  const all = Object.entries(now?.workflows ?? {});
  return all.sort(([first, a], [second, b]) => b.requests_total - a.requests_total || first.localeCompare(second))[0]?.[0];
}

function summary(now) {
  if (!now) return "connecting …";
  const programs = Object.values(now.programs);
  const num = programs.filter(({ state }) => state === "ready").length;
  const cells = now.cells?.length > 1 ? ` · ${plural(now.cells.length, "cell")}` : "";
  return programs.length ? `${num} of ${plural(programs.length, "program")} ready${cells}` : "what this key may see";
}

function WorkflowFigures({ name, found }) {
  const timed = (value) => {
    const [text, unit] = parts(value);
    return { value: text, unit };
  };
  return html`<${Figures} label="Figures of ${name}" figures=${[
    { name: "Requests/s", value: number(found?.requests_per_s), id: "requests_per_s" },
    { name: "Median", ...timed(found?.p50_ms), title: "Half of the requests took no longer" },
    { name: "99th percentile", ...timed(found?.p99_ms), title: "One request in a hundred took longer" },
    { name: "In flight", value: count(found?.in_flight), id: "in_flight" },
    { name: "Failed/s", value: number(found?.failed_per_s), tone: found?.failed_per_s > 0 ? "bad" : "" },
    { name: "Requests", value: count(found?.requests_total), id: "requests_total", title: "Since the server started" },
    { name: "Failed", value: count(found?.failed_total), id: "failed_total", tone: found?.failed_total > 0 ? "bad" : "", title: "Since the server started" },
    { name: "Refused", value: count(found?.refused_total), id: "refused_total", tone: found?.refused_total > 0 ? "warn" : "", title: "Since the server started, before they ran: wrong inputs, no room, too late" },
  ]} />`;
}

function WorkflowGraph({ workflow, graph, error, programs }) {
  const box = useRef(null);
  const [height, setHeight] = useState(0);
  useEffect(() => {
    if (graph && box.current.clientHeight !== height) setHeight(box.current.clientHeight); // kept while another workflow's graph is fetched
  });
  return html`<${Panel} title="Workflow" note=${graph && `learned from ${plural(graph.num_requests, "request")}; width: calls per second`}><div ref=${box} style=${{ minHeight: graph ? undefined : `${height}px` }}>
    ${error && !graph ? html`<${Failure} error=${error} />` : !graph ? html`<${Empty}>…<//>` : graph.edges.length
      ? html`<${Graph} graph=${graph} programs=${programs} />`
      : html`<${Empty}>No request yet. <a href=${to("try", workflow)}>Send one</a>, and the graph appears.<//>`}
  </div><//>`;
}

function Traffic({ workflow }) {
  const of = (field) => (value) => value.workflows[workflow]?.[field];
  const rates = [
    { name: "requests/s", colour: "do-compute", column: "requests_per_s", of: of("requests_per_s"), fill: true },
    { name: "failed/s", colour: "bad", column: "failed_per_s", of: of("failed_per_s") },
  ];
  const times = [
    { name: "99th percentile", colour: "do-queue", column: "p99_ms", of: of("p99_ms") },
    { name: "median", colour: "do-compute", column: "p50_ms", of: of("p50_ms") },
  ];
  return html`<div class="grid">
    <${Panel} title="Requests per second" width="w6"><${TimeSeries} label="Requests per second of ${workflow}" lines=${rates} about=${{ workflow }} format=${number} /><//>
    <${Panel} title="Time to answer" width="w6"><${TimeSeries} label="Time to answer of ${workflow}" lines=${times} about=${{ workflow }} format=${duration} /><//>
  </div>`;
}

function Slowest({ workflow }) {
  const [found, error] = usePolled(workflow && `requests?workflow=${encodeURIComponent(workflow)}&order=slowest&limit=6`, 3000);
  return html`<${Panel} title="Slowest requests" note=${html`<a href=${to("requests", { workflow, order: "slowest" })}>all requests</a>`} width="w6">
    ${error && !found ? html`<${Failure} error=${error} />` : found?.requests.length
      ? html`<${RequestTable} requests=${found.requests} />`
      : html`<${Empty}>None kept yet.<//>`}
  <//>`;
}
