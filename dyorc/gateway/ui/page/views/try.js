// A form that sends a request to a model, made from the model's own description.
import { html, useEffect, useRef, useState } from "../html.js";
import { duration } from "../format.js";
import { get } from "../api.js";
import { infer } from "../infer.js";
import { to } from "../route.js";
import { Empty, Failure, Head, Panel, usePolled } from "../widgets/basics.js";
import { TensorField, firstState, valuesOf } from "../widgets/tensor_field.js";
import { Outputs } from "../widgets/outputs.js";

export function Try({ route }) {
  const [models, error] = usePolled("v2/models", 0);
  const names = models?.models ?? [];
  const name = route.rest[0] ?? names[0];
  return html`<div class="view">
    <${Head} title="Try it" note="Sends one request and shows its timeline">
      <label class="small muted"><span class="only-read">Model</span><select onChange=${(event) => (location.hash = to("try", event.target.value))}>
        ${names.map((one) => html`<option value=${one} selected=${one === name}>${one}</option>`)}</select></label>
    <//>
    ${error && html`<${Failure} error=${error} />`}
    ${name ? html`<${ModelForm} key=${name} name=${name} />` : !error && html`<${Empty}>…<//>`}
  </div>`;
}

function ModelForm({ name }) {
  const [model, error] = useModel(name);
  const [state, setState] = useState(null);
  const [statics, setStatics] = useState({});
  const [sent, setSent] = useState(null);
  useEffect(() => {
    if (model) setState(Object.fromEntries(model.inputs.map((input) => [input.name, firstState(input)])));
  }, [model]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!model || !state) return html`<${Empty}>…<//>`;
  const send = async (event) => {
    event.preventDefault();
    setSent({ isRunning: true, answers: [] });
    setSent(await run(model, { state, statics, show: setSent }));
  };
  return html`<div class="grid">
    <${Panel} title="Request" note=${model.isStream ? "the answer comes in parts" : ""} width="w6">
      <form class="form" onSubmit=${send}>
        ${model.inputs.map((input) => html`<${TensorField} key=${input.name} input=${input} state=${state[input.name]}
          onChange=${(change) => setState((before) => ({ ...before, [input.name]: { ...before[input.name], ...change } }))} />`)}
        ${model.statics.map((spec) => html`<${StaticField} key=${spec.name} spec=${spec} value=${statics[spec.name]} onChange=${(value) => setStatics({ ...statics, [spec.name]: value })} />`)}
        <div class="controls"><button class="button strong" disabled=${sent?.isRunning}>${sent?.isRunning ? "Sending …" : "Send"}</button></div>
      </form>
    <//>
    <${Result} sent=${sent} />
  </div>`;
}

/** The model's description, with what a workflow takes besides tensors and whether it streams; [model, error]. */
function useModel(name) {
  const [found, setFound] = useState([null, null]);
  useEffect(() => {
    let isOld = false;
    const path = `v2/models/${encodeURIComponent(name)}`;
    Promise.all([get(path), get(`${path}/config`)]).then(
      ([model, config]) => isOld || setFound([{ ...model, statics: JSON.parse(model.properties?.parameters ?? "[]"), isStream: config.model_transaction_policy?.decoupled === true }, null]),
      (error) => isOld || setFound([null, error]),
    );
    return () => (isOld = true);
  }, [name]);
  return found;
}

async function run(model, { state, statics, show }) {
  const id = `ui-${crypto.getRandomValues(new Uint32Array(2)).reduce((text, number) => text + number.toString(36), "")}`;
  const answers = [];
  const started = performance.now();
  try {
    const inputs = [];
    for (const input of model.inputs) inputs.push({ name: input.name, datatype: input.datatype, ...(await valuesOf(input, state[input.name])) });
    const given = Object.fromEntries(model.statics.filter(({ name }) => statics[name] !== undefined).map((spec) => [spec.name, typed(spec, statics[spec.name])]));
    await infer(model, {
      id, inputs, parameters: given, isStream: model.isStream,
      take: (answer) => {
        answers.push({ ...answer, at_ms: performance.now() - started });
        show({ id, isRunning: true, answers: [...answers] });
      },
    }); // prettier-ignore
    return { id, answers, took_ms: performance.now() - started };
  } catch (error) {
    return { id, answers, error, took_ms: performance.now() - started };
  }
}

const typed = ({ type }, value) => (type === "bool" ? value === true : type === "str" ? value : Number(value));

function StaticField({ spec, value, onChange }) {
  const shown = value ?? spec.default;
  if (spec.type === "bool") {
    return html`<label class="small"><input type="checkbox" checked=${shown === true} onChange=${(event) => onChange(event.target.checked)} /> ${spec.name}</label>`;
  }
  return html`<label class="field"><span>${spec.name} <span class="muted small mono">${spec.type}</span></span>
    <input type=${spec.type === "str" ? "text" : "number"} step=${spec.type === "float" ? "any" : "1"} value=${shown ?? ""} required=${spec.default === null}
      onInput=${(event) => onChange(event.target.value)} /></label>`;
}

function Result({ sent }) {
  const box = useRef(null);
  if (!sent) return html`<${Panel} title="Answer" width="w6"><${Empty}>Nothing sent yet.<//><//>`;
  const { id, answers, error, took_ms, isRunning } = sent;
  return html`<${Panel} title="Answer" note=${took_ms !== undefined ? `${duration(took_ms)} in the browser` : ""} width="w6">
    <div class="form" role="status" aria-live="polite" ref=${box}>
      ${error && html`<p class="callout bad">${error.message}</p>`}
      ${answers.map((answer, index) => html`<${Outputs} key=${index} answer=${answer} number=${answers.length > 1 || isRunning ? index + 1 : 0} />`)}
      ${!isRunning && id && html`<p><a class="button" href=${to("requests", id)}>Timeline of this request</a></p>`}
      ${isRunning && html`<p class="muted">…</p>`}
    </div>
  <//>`;
}
