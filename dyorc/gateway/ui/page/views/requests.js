// All requests that are kept: the latest, or the slowest and where their time went; failed ones, of one workflow. Only the rows in
// sight are drawn.
import { html, useEffect, useRef, useState } from "../html.js";
import { ago, bytes, clock, count, duration } from "../format.js";
import { get } from "../api.js";
import { useLive } from "../live.js";
import { replace, to } from "../route.js";
import { Cause, addressOf } from "../widgets/request_table.js";
import { Choice, Empty, Failure, Head, State } from "../widgets/basics.js";
import { Rows } from "../widgets/rows.js";
import { Tail } from "../widgets/tail.js";

const PAGE = 250;
const MORE = 500; // the most that the server lists at a time
const MOST = 20_000; // rows in the browser's memory
const REFRESH_MS = 2000;
const nameOf = ({ cell, number }) => `${cell} ${number}`;

const COLUMNS = [
  ["at", "When"], ["id", "Request"], ["workflow", "Workflow"], ["outcome", "Outcome"], ["took", "Took"], ["cause", "Mostly"],
  ["calls", "Calls"], ["guesses", "Guesses"], ["tenant", "Tenant"], ["via", "Via"],
]; // prettier-ignore

export function Requests({ route }) {
  const workflow = route.query.get("workflow") ?? "";
  const order = route.query.get("order") ?? "latest";
  const outcome = route.query.get("outcome") ?? "all";
  const { now } = useLive();
  const { found, error, more, hold } = useRequests({ workflow, order, outcome });
  const show = (change) => replace(to("requests", { workflow, order, outcome, ...change }));
  const names = Object.keys(now?.workflows ?? {}).sort();
  const note = found ? `${count(found.num_kept)} kept, ${bytes(found.kept_bytes)}; slow and failed ones stay longest` : "…";
  return html`<div class="view">
    <${Head} title="Requests" note=${note}>
      <${Choice} label="Order" value=${order} options=${{ latest: "Latest", slowest: "Slowest" }} onChange=${(value) => show({ order: value })} />
      <${Choice} label="Outcome" value=${outcome} options=${{ all: "All", ok: "Answered", failed: "Failed" }} onChange=${(value) => show({ outcome: value })} />
      <label class="small muted"><span class="only-read">Workflow</span>
        <select onChange=${(event) => show({ workflow: event.target.value })}>
          <option value="" selected=${!workflow}>all workflows</option>
          ${names.map((name) => html`<option value=${name} selected=${name === workflow}>${name}</option>`)}
        </select></label>
    <//>
    ${error && !found && (error.status === 404 ? html`<${Empty}>This server keeps no records of requests (<code>telemetry.records</code>).<//>` : html`<${Failure} error=${error} />`)}
    ${order === "slowest" && found && html`<${Tail} workflow=${workflow} />`}
    ${found && !found.requests.length && html`<${Empty}>None ${outcome === "failed" ? "failed" : "kept yet"}.<//>`}
    ${found?.requests.length > 0 && html`<${Rows} label="Requests" columns=${COLUMNS} items=${found.requests} keyOf=${nameOf}
      row=${Row} onEnd=${more} onAway=${hold} />`}
  </div>`;
}

function Row({ item }) {
  return html`<span role="cell" class="c-at muted" title=${`${ago(item.arrived_s)} ago`}>${clock(item.arrived_s)}</span>
    <span role="cell" class="c-id"><a class="mono row-link" href=${addressOf(item)}>${item.request_id ?? `#${item.number}`}</a></span>
    <span role="cell" class="c-workflow">${item.workflow}</span>
    <span role="cell" class="c-outcome"><${State} state=${item.outcome} isError=${item.outcome !== "ok"} /></span>
    <span role="cell" class="c-took num">${duration(item.duration_ms)}</span>
    <span role="cell" class="c-cause"><${Cause} kind=${item.cause} /></span>
    <span role="cell" class="c-calls num">${count(item.num_calls)}</span>
    <span role="cell" class="c-guesses num">${count(item.num_guesses)}</span>
    <span role="cell" class="c-tenant">${item.tenant || "–"}</span>
    <span role="cell" class="c-via muted">${item.transport}</span>`;
}

/** The list. It renews itself while its top is in sight, and goes on when its end comes near. */
function useRequests({ workflow, order, outcome }) {
  const [state, setState] = useState({ found: null, error: null });
  const list = useRef({ isAway: false, isBusy: false, isWhole: false, ask: null });
  const key = order === "slowest" ? "duration_ms" : "ended_s";
  useEffect(() => {
    const abort = new AbortController();
    const ask = (beyond) => get(`requests?${new URLSearchParams({ order, outcome, limit: beyond.beyond ? MORE : PAGE, ...(workflow && { workflow }), ...beyond })}`, { signal: abort.signal });
    list.current = { isAway: false, isBusy: false, isWhole: false, ask };
    setState({ found: null, error: null });
    let timer = 0;
    const renew = async () => {
      try {
        if (!list.current.isAway) {
          const found = await ask({});
          list.current.isWhole = found.requests.length < PAGE;
          if (!list.current.isAway || !timer) setState({ found, error: null });
        }
      } catch (error) {
        if (!abort.signal.aborted) setState((before) => ({ ...before, error }));
      }
      if (!abort.signal.aborted) timer = setTimeout(renew, REFRESH_MS);
    };
    renew();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [workflow, order, outcome]);
  const more = async () => {
    const now = list.current;
    const shown = state.found?.requests ?? [];
    if (now.isBusy || now.isWhole || !now.isAway || !shown.length || shown.length >= MOST) return;
    now.isBusy = true;
    try {
      const next = await now.ask({ beyond: shown.at(-1)[key] });
      const known = new Set(shown.map(nameOf));
      const added = next.requests.filter((one) => !known.has(nameOf(one)));
      now.isWhole = !added.length;
      setState(({ found }) => ({ found: { ...next, requests: [...found.requests, ...added] }, error: null }));
    } catch (error) {
      setState((before) => ({ ...before, error }));
    } finally {
      now.isBusy = false;
    }
  };
  return { ...state, more, hold: (isAway) => (list.current.isAway = isAway) };
}
