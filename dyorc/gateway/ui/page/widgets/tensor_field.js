// One input of a form: how its values are made. Dimensions that are open can be set.
import { html, useRef, useState } from "../html.js";
import { fromImage, fromJson, fromText, imageLayout, isReal, random, sizeOf } from "../tensors.js";

const isText = ({ datatype, shape }) => datatype === "UINT8" && shape.length === 1;
const OPEN_DIM = 16;

function waysOf(input) {
  if (input.datatype === "BYTES") return { json: "JSON" };
  return {
    ...(isText(input) && { text: "Text" }),
    random: "Random", zeros: "Zeros", json: "JSON",
    ...(imageLayout(input.shape) && { image: "Image" }),
  }; // prettier-ignore
}

export function firstState(input) {
  const shape = input.shape.map((dim) => (dim < 0 ? (isText(input) ? 32 : OPEN_DIM) : dim));
  const json = input.datatype === "BYTES" ? '["hello"]' : "";
  return { way: Object.keys(waysOf(input))[0], shape, json, text: "Hello, world.", range: isReal(input.datatype) ? "0,1" : "0,255", file: null, canvas: null };
}

/** {values, shape} of an input as it is filled in. */
export async function valuesOf(input, state) {
  const { way, shape } = state;
  const num = sizeOf(shape);
  switch (way) {
    case "zeros": return { values: new Float64Array(num), shape };
    case "random": return { values: random(input.datatype, num), shape };
    case "text": return { values: fromText(state.text, num), shape };
    case "image": {
      if (!state.file) throw new Error(`${input.name}: no image was given`);
      const [values, found] = await fromImage(state.file, input.shape, state.range.split(",").map(Number), state.canvas);
      return { values, shape: found };
    }
    default: {
      const [values, found] = fromJson(state.json, shape, input.datatype);
      return { values, shape: input.datatype === "BYTES" && !input.shape.length ? [] : found };
    }
  } // prettier-ignore
}

export function TensorField({ input, state, onChange }) {
  const ways = waysOf(input);
  const isOpen = input.shape.some((dim) => dim < 0);
  return html`<fieldset class="tensor">
    <legend><b>${input.name}</b> <span class="muted small mono">${input.datatype} [${input.shape.map((dim) => (dim < 0 ? "any" : dim)).join(" × ")}]</span></legend>
    <div class="controls">
      <div class="choice" role="group" aria-label="Values of ${input.name}">
        ${Object.entries(ways).map(([way, title]) => html`<button type="button" aria-pressed=${way === state.way} onClick=${() => onChange({ way })}>${title}</button>`)}
      </div>
      ${isOpen && state.way !== "image" && html`<${Shape} input=${input} state=${state} onChange=${onChange} />`}
    </div>
    ${state.way === "text" && html`<input type="text" aria-label="Text of ${input.name}" value=${state.text} onInput=${(event) => onChange({ text: event.target.value })} />`}
    ${state.way === "json" && html`<textarea aria-label="JSON of ${input.name}" spellcheck="false" placeholder="[1, 2, 3]" value=${state.json} onInput=${(event) => onChange({ json: event.target.value })}></textarea>`}
    ${imageLayout(input.shape) && html`<${ImageDrop} input=${input} state=${state} onChange=${onChange} />`}
  </fieldset>`;
}

function Shape({ input, state, onChange }) {
  const set = (index, text) => onChange({ shape: state.shape.map((dim, at) => (at === index ? Math.max(0, Number(text) || 0) : dim)) });
  return html`<span class="controls small muted">shape ${input.shape.map((dim, index) => (dim < 0
    ? html`<input type="number" min="0" value=${state.shape[index]} aria-label="Dimension ${index + 1} of ${input.name}" style=${{ width: "80px" }} onInput=${(event) => set(index, event.target.value)} />`
    : html`<span class="mono">${dim}</span>`))}</span>`;
}

/** Takes an image that is dropped or chosen, and shows it as the model will see it. */
function ImageDrop({ input, state, onChange }) {
  const [isOver, setOver] = useState(false);
  const [error, setError] = useState("");
  const canvas = useRef(null);
  const take = async (file, range = state.range) => {
    if (!file) return;
    setError("");
    try {
      await fromImage(file, input.shape, range.split(",").map(Number), canvas.current);
      onChange({ way: "image", file, range, canvas: canvas.current });
    } catch {
      setError(`${file.name} is not an image that this browser can read`);
    }
  };
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    take(event.dataTransfer.files[0]);
  };
  return html`<div class="drop ${isOver ? "over" : ""}" onDragOver=${(event) => (event.preventDefault(), setOver(true))} onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <canvas ref=${canvas} width="1" height="1" hidden=${!state.file} aria-label="The image as the model sees it" role="img"></canvas>
    <label class="field">Drop an image here, or choose one<input type="file" accept="image/*" onChange=${(event) => take(event.target.files[0])} /></label>
    <label class="field">black and white become<select onChange=${(event) => (state.file ? take(state.file, event.target.value) : onChange({ range: event.target.value }))}>
      ${["0,1", "0,255", "-1,1", "1,0", "0,16"].map((range) => html`<option value=${range} selected=${range === state.range}>${range.replace(",", " … ")}</option>`)}</select></label>
    ${error && html`<span class="bad" role="alert">${error}</span>`}
  </div>`;
}
