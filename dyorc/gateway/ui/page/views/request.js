// One request: why it took as long as it did, first in sentences, then as shares, then call by call.
import { html, useEffect, useState } from "../html.js";
import { clock, count, duration, parts, share } from "../format.js";
import { get } from "../api.js";
import { to } from "../route.js";
import { stageOf } from "../words.js";
import { Empty, Figures, Head, Panel, State, Table } from "../widgets/basics.js";
import { Timeline } from "../widgets/timeline.js";

const TRIES_MS = [300, 700, 1500]; // it may have been answered just now

export function Request({ route }) {
  const id = route.rest[0];
  const { found, error } = useRecord(id);
  if (!found) {
    return html`<div class="view"><${Head} title="Request" note=${html`<span class="mono">${id}</span>`} />
      ${error ? html`<${Panel}><${Empty}>${error.status === 404 ? "It is not kept: it is unknown, still running, or has made room for later ones." : error.message}<//><//>` : html`<${Empty}>…<//>`}</div>`;
  }
  return html`<div class="view">
    <${Head} title=${`Request ${found.request_id ?? `#${found.number}`}`} note=${html`<a href=${to("requests", { workflow: found.workflow })}>${found.workflow}</a> at ${clock(found.arrived_s, { withMs: true })}`}>
      <${State} state=${found.outcome} isError=${found.outcome !== "ok"} />
    <//>
    ${found.error && html`<div class="callout bad" role="note"><strong>${found.outcome}</strong> ${found.error}</div>`}
    <${Diagnosis} found=${found} />
    <${Timeline} key=${`${found.cell} ${found.number}`} found=${found} />
    <div class="grid">
      <${Facts} found=${found} />
      <${Notes} found=${found} />
    </div>
  </div>`;
}

/** The record; asked for again while the server does not have it yet. */
function useRecord(id) {
  const [state, setState] = useState({ found: null, error: null });
  useEffect(() => {
    const abort = new AbortController();
    const look = async (tries) => {
      try {
        const found = await get(`requests/${encodeURIComponent(id)}`, { signal: abort.signal });
        setState({ found, error: null });
      } catch (error) {
        if (abort.signal.aborted) return;
        if (error.status === 404 && tries < TRIES_MS.length) setTimeout(() => abort.signal.aborted || look(tries + 1), TRIES_MS[tries]);
        else setState({ found: null, error });
      }
    };
    look(0);
    const again = () => look(0);
    addEventListener("keychange", again);
    return () => {
      abort.abort();
      removeEventListener("keychange", again);
    };
  }, [id]);
  return state;
}

function Diagnosis({ found }) {
  const [worst, ...others] = found.diagnosis ?? [];
  const [value, unit] = parts(found.duration_ms);
  const stages = Object.entries(found.stages ?? {}).map(([name, ms]) => [name.replace(/_ms$/, ""), ms]);
  const known = stages.filter(([, ms]) => ms > 0).sort(([, a], [, b]) => b - a);
  return html`<${Panel} width="diagnosis">
    <h2 class="only-read">Why it took so long</h2>
    <div class="verdict">
      <p class="took"><b>${value}</b> ${unit}</p>
      <div>
        <p class="worst">${worst ?? "Nothing stands out."}</p>
        ${others.length > 0 && html`<ul class="others">${others.map((text) => html`<li>${text}</li>`)}</ul>`}
      </div>
    </div>
    ${known.length > 0 && html`<${Stages} stages=${known} total=${found.duration_ms} />`}
  <//>`;
}

function Stages({ stages, total }) {
  return html`<div class="stages" aria-hidden="true">
      ${stages.map(([kind, ms]) => html`<i key=${kind} title=${`${stageOf(kind)[1]}: ${duration(ms)}`} style=${{ flexGrow: ms, background: `var(--${stageOf(kind)[0]})` }}></i>`)}
    </div>
    <ul class="keys stage-keys" aria-label="Where the time went">
      ${stages.map(([kind, ms]) => html`<li class="key" key=${kind}><i style=${{ background: `var(--${stageOf(kind)[0]})` }}></i>${stageOf(kind)[1]} <b>${duration(ms)}</b> ${share(ms / total)}</li>`)}
    </ul>`;
}

function Facts({ found }) {
  const facts = [
    ["Calls", count(found.num_calls)], ["of them guesses made", count(found.num_guesses)], ["Came by", found.transport], ["Tenant", found.tenant || "everybody"],
    ["Cell", found.cell], ["Number", found.number], ["Trace", found.trace_id ? html`<code>${found.trace_id}</code>` : "–"],
  ]; // prettier-ignore
  return html`<${Panel} title="Facts" width=${found.notes?.length || found.parts?.length ? "w6" : ""}>
    <dl class="fact-list">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
  <//>`;
}

function Notes({ found }) {
  const parts = (found.parts ?? []).map((part) => [part.sent_ms, `part ${part.index} was ready; the client took it after ${duration(part.taken_ms == null ? null : part.taken_ms - part.sent_ms)}`]);
  const all = [...(found.notes ?? []).map((note) => [note.at_ms, note.text]), ...parts].sort(([a], [b]) => a - b);
  if (!all.length) return null;
  return html`<${Panel} title="What else happened" width="w6">
    <${Table} label="Notes" head=${["#At", "What"]}>
      ${all.slice(0, 200).map(([at, text], index) => html`<tr key=${index}><td class="num">${duration(at)}</td><td class="wide">${text}</td></tr>`)}
    <//>
  <//>`;
}
