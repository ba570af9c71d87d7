// How many replicas each program has and should have, why, and what was foreseen.
import { html, useState } from "../html.js";
import { clock, count, number, seconds } from "../format.js";
import { post } from "../api.js";
import { useLive } from "../live.js";
import { to } from "../route.js";
import { Choice, Empty, Failure, Head, Panel, Table, usePolled } from "../widgets/basics.js";
import { ForecastSeries, ReplicaSeries } from "../widgets/replica_series.js";

const WINDOWS = { 180: "3 min", 600: "10 min", 86400: "1 day" };

export function Scaling() {
  const { now } = useLive();
  const [found, error, again] = usePolled("scaling", 2000);
  const names = Object.keys(found?.programs ?? {}).sort();
  const [chosen, setChosen] = useState("");
  const [windowS, setWindow] = useState("600");
  const name = names.includes(chosen) ? chosen : names[0];
  return html`<div class="view">
    <${Head} title="Scaling" note="Warm replicas take batches; parked ones are processes that wait without weights; cold means none" />
    <${Panel} title="Replicas">
      ${error && !found ? html`<${Failure} error=${error} />` : !found ? html`<${Empty}>…<//>` : html`<${Wishes} programs=${found.programs} live=${now?.programs} again=${again} />`}
    <//>
    ${name && html`<${Panel} title="Over time">
      <div class="controls" style=${{ marginBottom: "10px" }}><label class="small muted">Program <select onChange=${(event) => setChosen(event.target.value)}>
        ${names.map((one) => html`<option selected=${one === name}>${one}</option>`)}</select></label>
        <${Choice} label="How far back" value=${windowS} options=${WINDOWS} onChange=${setWindow} /></div>
      <div class="grid" key=${`${name} ${windowS}`}>
        <div class="w6"><h3>Replicas</h3><${ReplicaSeries} name=${name} height=${180} windowS=${Number(windowS)} /></div>
        <div class="w6"><h3>Calls per second, and what was foreseen</h3><${ForecastSeries} name=${name} height=${180} windowS=${Number(windowS)} /></div>
      </div>
    <//>`}
    ${found && html`<${Decisions} decisions=${found.decisions} />`}
  </div>`;
}

function Wishes({ programs, live, again }) {
  const head = ["Program", "#Warm", "#Loading", "#Parked", "#Wanted", "#Forecast", "#Calls/s", "#From parked", "#From cold", "Reason", "Set by hand"];
  return html`<${Table} label="Replicas" head=${head}>
    ${Object.entries(programs).sort(([a], [b]) => a.localeCompare(b)).map(([name, found]) => html`<tr key=${name}>
      <th scope="row"><a href=${to("programs", name)}>${name}</a></th>
      <td class="num">${count(found.num_warm)}</td><td class="num">${count(found.num_warming + found.num_starting)}</td><td class="num">${count(found.num_parked)}</td>
      <td class="num">${wanted(found)}</td>
      <td class="num">${number(live?.[name]?.forecast_per_s)}</td><td class="num">${number(live?.[name]?.calls_per_s)}</td>
      <td class="num">${seconds(found.from_parked_s)}</td><td class="num">${seconds(found.from_cold_s)}</td>
      <td class="wide">${found.is_by_hand ? "set by hand" : found.reason || fixed(found)}</td>
      <td><${ByHand} name=${name} found=${found} again=${again} /></td>
    </tr>`)}
  <//>`;
}

const isFixed = (found) => found.min_warm === found.max_replicas;
const fixed = (found) => (isFixed(found) ? "fixed number" : "–");
const wanted = (found) => (isFixed(found) && !found.reason && !found.is_by_hand ? count(found.min_warm) : `${count(found.num_warm_wanted)}${found.num_parked_wanted ? ` + ${found.num_parked_wanted}` : ""}`);

/** Sets how many are warm; empty: the forecast decides again. */
function ByHand({ name, found, again }) {
  const [error, setError] = useState("");
  const send = async (event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("warm");
    try {
      await post(`scaling/${encodeURIComponent(name)}`, { num_warm: text === "" ? null : Number(text), num_parked: null });
      setError("");
    } catch (refused) {
      setError(refused.message);
    }
    again();
  };
  return html`<form class="controls nowrap" onSubmit=${send}>
    <input name="warm" type="number" min="0" max="999" aria-label="Warm replicas of ${name}; empty: the forecast decides" placeholder=${found.is_by_hand ? "auto" : ""} style=${{ width: "74px" }} />
    <button class="button">Set</button>${error && html`<span class="bad small" role="alert">${error}</span>`}
  </form>`;
}

function Decisions({ decisions }) {
  return html`<${Panel} title="Last decisions" note="the newest first">
    ${decisions?.length ? html`<${Table} label="Last decisions" head=${["When", "Program", "#Warm", "#Parked", "Reason"]}>
      ${[...decisions].reverse().slice(0, 60).map((one) => html`<tr key=${`${one.at_s} ${one.program}`}><td class="nowrap">${clock(one.at_s)}</td><td>${one.program}</td>
        <td class="num">${count(one.num_warm)}</td><td class="num">${count(one.num_parked)}</td><td class="wide">${one.reason}</td></tr>`)}
    <//>` : html`<${Empty}>None: programs with a fixed number of replicas are left alone.<//>`}
  <//>`;
}
