// What a row of the timeline hides: the bet, the batches, and who shared them.
import { html } from "../html.js";
import { bytes, duration, plural, share } from "../format.js";
import { to } from "../route.js";
import { reasonText } from "../words.js";
import { State, Table } from "./basics.js";

export function Details({ row, found }) {
  return html`<div class="tl-details">
    ${row.kind === "call" && html`<${CallDetails} row=${row} found=${found} />`}
    ${row.kind === "decision" && html`<${DecisionDetails} decision=${row.decision} />`}
    ${row.kind === "part" && html`<p>Part ${row.part.index} was ready at ${duration(row.part.sent_ms)}, taken at ${duration(row.part.taken_ms)}.</p>`}
  </div>`;
}

function CallDetails({ row, found }) {
  const { call, batches } = row;
  const sources = (call.sources ?? []).map((id) => found.calls.find((other) => other.call === id)?.program).filter(Boolean);
  return html`<p class="facts">
      <${State} state=${call.outcome} isError=${call.outcome === "failed"} />
      <span>call ${call.call} of <a href=${to("programs", call.program)}>${call.program}</a></span>
      ${sources.length > 0 && html`<span>reads ${sources.join(", ")}</span>`}
      ${call.branch && html`<span>after the outcome “${call.branch}”</span>`}
    </p>
    ${call.error && html`<p class="bad">${call.error}</p>`}
    ${call.is_guess && html`<p>${betText(call)}</p>`}
    ${batches.map((batch) => html`<${Batch} key=${batch.id} batch=${batch} found=${found} />`)}
    ${!batches.length && html`<p class="muted">It was in no batch.</p>`}`;
}

function betText({ bet, committed_ms: committed, outcome }) {
  const end = outcome === "squashed" ? "The guess was wrong: its result was thrown away." : committed != null ? `The guess was right, which was known at ${duration(committed)}.` : "It was a guess.";
  if (!bet) return end;
  const facts = [
    bet.probability != null && `p = ${share(bet.probability)}`,
    bet.saves_ms != null && `saves ${duration(bet.saves_ms)} if right`,
    bet.costs_others_ms != null && `costs others ${duration(bet.costs_others_ms)} if wrong`,
    bet.slows_others_ms != null && `slows down what runs at the same time by ${duration(bet.slows_others_ms)}`,
  ];
  return `${end} When it was run: ${facts.filter(Boolean).join(", ")}.`;
}

function Batch({ batch, found }) {
  const { requests = [] } = batch;
  const own = found.number;
  const others = requests.filter(({ number }) => number !== own).length;
  return html`<div class="batch">
    <h3>Batch of ${batch.size}${batch.num_guesses ? `, with ${plural(batch.num_guesses, "guess")}` : ""}</h3>
    <p>Formed because ${reasonText(batch.reason)}. On replica <span class="mono">${batch.replica}</span>, ${batch.outcome}.</p>
    <dl class="steps">
      ${[["sent", batch.sent_ms], ["started", batch.started_ms], ["back", batch.ended_ms]].map(([name, at]) => html`<div><dt>${name}</dt><dd>${duration(at)}</dd></div>`)}
      ${[["fetch", batch.gather_ms], ["compute", batch.infer_ms], ["store", batch.publish_ms]].map(([name, took]) => html`<div><dt>${name}</dt><dd>${duration(took)}</dd></div>`)}
    </dl>
    ${batch.moves?.length > 0 && html`<p>Its inputs came ${batch.moves.map((move) => `by ${move.tier}: ${bytes(move.num_bytes)}${move.took_ms ? ` in ${duration(move.took_ms)}` : ""}`).join("; ")}.</p>`}
    ${others ? html`<details class="alt"><summary>Shared with ${plural(others, "other call")}</summary>
      <${Table} label="Requests in this batch" head=${["Request", "Workflow"]}>
        ${requests.map((one, index) => html`<tr key=${index}><td class="mono">${one.number === own ? "this one" : one.request_id ? html`<a href=${to("requests", one.request_id)}>${one.request_id}</a>` : `#${one.number}`}</td><td>${one.workflow ?? "–"}</td></tr>`)}
      <//></details>` : html`<p class="muted small">No other call was in it.</p>`}
  </div>`;
}

function DecisionDetails({ decision }) {
  const gains = Object.entries(decision.gains_ms ?? {});
  const followed = Object.entries(decision.followed ?? {});
  return html`<p class="facts"><span class="mono">${decision.site}</span><span>open for ${duration(decision.decided_ms == null ? null : decision.decided_ms - decision.opened_ms)}</span>
      <span>outcome: <b>${decision.outcome || "none"}</b></span></p>
    ${followed.length ? html`<p>Meanwhile the workflow went on as if it were ${followed.map(([outcome, p]) => `“${outcome}” (p = ${share(p)})`).join(" and ")}.</p>` : html`<p>Nothing was guessed: the workflow waited.</p>`}
    ${gains.map(([outcome, ms]) => html`<p>“${outcome}” ${ms >= 0 ? `saved ${duration(ms)}` : `cost others ${duration(-ms)}`}.</p>`)}`;
}
