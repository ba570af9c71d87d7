// An answer's tensors: their values, and what a person would want to know of them at a glance.
import { html } from "../html.js";
import { count, duration, number, plural } from "../format.js";

const SHOWN = 256;
const PRINTABLE = /^[\x20-\x7e\n\t\u00a0-\uffff]+$/;

export function Outputs({ answer, number: part }) {
  return html`<div class="form">
    ${part > 0 && html`<h3>Part ${part} <span class="muted small">after ${duration(answer.at_ms)}</span></h3>`}
    ${answer.outputs.map((output) => html`<${Output} key=${output.name} output=${output} />`)}
  </div>`;
}

function Output({ output }) {
  const { name, datatype, shape, data = [] } = output;
  const text = textOf(output);
  const numbers = data.filter((value) => typeof value === "number");
  const isVector = numbers.length > 1 && text === null;
  return html`<div>
    <p><b>${name}</b> <span class="muted small mono">${datatype} [${shape.join(" × ")}]</span>
      ${isVector && html`<span class="muted small"> · min ${number(least(numbers))} · max ${number(greatest(numbers))}, at ${count(numbers.indexOf(greatest(numbers)))}</span>`}</p>
    <pre class="out" tabindex="0">${text ?? data.slice(0, SHOWN).map(shown).join(", ") + (data.length > SHOWN ? `, … (${plural(data.length, "value")})` : "")}</pre>
  </div>`;
}

const least = (values) => values.reduce((a, b) => Math.min(a, b));
const greatest = (values) => values.reduce((a, b) => Math.max(a, b));
const shown = (value) => (typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(5)) : String(value));

/** Bytes that are text are shown as text. */
function textOf({ datatype, shape, data }) {
  if (datatype === "BYTES") return data.join("\n");
  if (datatype !== "UINT8" || shape.length !== 1 || !data.length) return null;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(data));
    return PRINTABLE.test(text) ? text : null;
  } catch {
    return null;
  }
}
